import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A Java member of a group. Prints what it owns after every poll that changed it ("0 2"), and each change when it happens,
 * with the time in ms ("+ 1795236000000 0 2" gained, "- ..." given up). Ends when its input ends.
 */
public class MixedConsumer {
    static void tell(String sign, Collection<TopicPartition> partitions) {
        StringBuilder line = new StringBuilder(sign + " " + System.currentTimeMillis());
        partitions.forEach(partition -> line.append(' ').append(partition.partition()));
        System.out.println(line);
    }

    static class Teller implements ConsumerRebalanceListener {
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) { tell("+", partitions); }
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) { tell("-", partitions); }
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("group.id", arguments[1]);
        settings.put("partition.assignment.strategy", arguments[3]);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings)) {
            consumer.subscribe(List.of(arguments[2]), new Teller());
            String shown = "";
            while (System.in.available() == 0) {
                consumer.poll(Duration.ofMillis(100));
                StringBuilder owned = new StringBuilder();
                consumer.assignment().stream().mapToInt(TopicPartition::partition).sorted().forEach(p -> owned.append(p).append(' '));
                if (!owned.toString().equals(shown)) System.out.println(shown = owned.toString());
            }
        }
    }
}
