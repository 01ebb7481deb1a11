import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Repartitioned;

/**
 * Members of share groups and of streams groups, told what to do line by line: "share GROUP NAME TOPIC",
 * "streams GROUP NAME TOPIC", "hang GROUP NAME" (a share member reads no more), "stop GROUP NAME"; ends when its input
 * ends. A streams application counts the records of its topic by way of a repartition topic.
 */
public class NewerMembers {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String key = words[1] + " " + words[2];
            switch (words[0]) {
                case "share" -> MEMBERS.put(key, new ShareMember(arguments[0], words));
                case "streams" -> MEMBERS.put(key, new StreamsMember(arguments[0], words, arguments[1]));
                case "hang" -> MEMBERS.get(key).hang();
                default -> MEMBERS.remove(key).end();
            }
        }
        for (Member member : MEMBERS.values()) member.end();
    }

    private interface Member {
        void hang();

        void end() throws InterruptedException;
    }

    private static class ShareMember extends Thread implements Member {
        private final Properties settings = new Properties();
        private final String topic;
        private volatile boolean running = true;
        private volatile boolean hanging;

        ShareMember(String servers, String[] words) throws Exception {
            topic = words[3];
            settings.put("bootstrap.servers", servers);
            settings.put("group.id", words[1]);
            settings.put("client.id", words[2]);
            settings.put("max.poll.records", "20");
            settings.put("share.acknowledgement.mode", "explicit");
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
            readFromTheBeginning(servers, words[1]);
            start();
        }

        /** A setting of the group, which brokers hold. */
        private static void readFromTheBeginning(String servers, String group) throws Exception {
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
                admin.incrementalAlterConfigs(
                    Map.of(resource, List.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
            }
        }

        @Override
        public void run() {
            try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(settings)) {
                consumer.subscribe(List.of(topic));
                while (running) {
                    if (hanging) {
                        Thread.sleep(100);
                        continue;
                    }
                    ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                    for (ConsumerRecord<byte[], byte[]> record : records) {
                        consumer.acknowledge(record, AcknowledgeType.ACCEPT);
                    }
                    if (!records.isEmpty()) consumer.commitSync();
                }
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
        }

        @Override
        public void hang() {
            hanging = true;
        }

        @Override
        public void end() throws InterruptedException {
            running = false;
            join();
        }
    }

    private static class StreamsMember implements Member {
        private final KafkaStreams streams;

        StreamsMember(String servers, String[] words, String folder) {
            Properties settings = new Properties();
            settings.put("bootstrap.servers", servers);
            settings.put("application.id", words[1]);
            settings.put("client.id", words[2]);
            settings.put("group.protocol", "streams");
            settings.put("state.dir", folder + "/" + words[2]);
            settings.put("commit.interval.ms", "300");
            settings.put("replication.factor", "1");
            settings.put("consumer.auto.offset.reset", "earliest");
            settings.put("default.key.serde", Serdes.ByteArraySerde.class.getName());
            settings.put("default.value.serde", Serdes.ByteArraySerde.class.getName());
            StreamsBuilder builder = new StreamsBuilder();
            builder.<byte[], byte[]>stream(words[3]).repartition(Repartitioned.<byte[], byte[]>as("again").withNumberOfPartitions(2))
                .foreach((key, value) -> { });
            streams = new KafkaStreams(builder.build(), settings);
            streams.start();
        }

        @Override
        public void hang() { }

        @Override
        public void end() {
            streams.close(Duration.ofSeconds(20));
        }
    }
}
