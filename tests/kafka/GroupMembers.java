import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.FencedInstanceIdException;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Java members of groups, told what to do line by line, and telling what happens to their partitions:
 * "start GROUP NAME TOPIC INSTANCE|- ASSIGNOR SESSION_MS HEARTBEAT_MS [SETTING=VALUE ...]", "stop GROUP NAME"; ends when
 * its input ends. With the assignor "consumer" a member joins by KIP-848; a topic that begins with ~ is a pattern then.
 * Members that commit (setting commit=true) take "hang GROUP NAME" (poll, read nothing), "slow GROUP NAME" (a few
 * records a second) and "rewind GROUP NAME" (back to the beginning, commit that, read nothing).
 * "subscribe GROUP NAME TOPIC" makes a member read another topic. With the setting revoke.ms=N it takes so long to give
 * partitions up.
 * A line of output is "MS GROUP NAME assigned|revoked|lost|failed|closed GENERATION PARTITION ...".
 */
public class GroupMembers {
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            String key = words[1] + " " + words[2];
            if (words[0].equals("start")) {
                Member before = MEMBERS.get(key);
                // A static member that is told to stop still has its place: brokers refuse another one until it has left.
                if (before != null && !before.running) before.join();
                Member member = new Member(arguments[0], key, words);
                MEMBERS.put(key, member);
                member.start();
            } else if (words[0].equals("stop")) {
                MEMBERS.get(key).running = false;
            } else if (words[0].equals("subscribe")) {
                MEMBERS.get(key).subscribes = words[3];
            } else {
                MEMBERS.get(key).trouble = words[0];
            }
        }
        for (Member member : MEMBERS.values()) member.running = false;
        for (Member member : MEMBERS.values()) member.join();
    }

    private static class Member extends Thread implements ConsumerRebalanceListener {
        private final String key;
        private final String topic;
        private final Properties settings = new Properties();
        private KafkaConsumer<byte[], byte[]> consumer;
        private boolean commits;
        volatile boolean running = true;
        volatile String trouble = "";
        volatile String subscribes = "";
        private long revokeMs;

        Member(String servers, String key, String[] words) {
            this.key = key;
            this.topic = words[3];
            settings.put("bootstrap.servers", servers);
            settings.put("group.id", words[1]);
            settings.put("client.id", words[2]);
            if (!words[4].equals("-")) settings.put("group.instance.id", words[4]);
            if (words[5].equals("consumer")) {
                settings.put("group.protocol", "consumer");
            } else {
                settings.put("partition.assignment.strategy", "org.apache.kafka.clients.consumer." + words[5]);
                settings.put("session.timeout.ms", words[6]);
                settings.put("heartbeat.interval.ms", words[7]);
            }
            for (int place = 8; place < words.length; place++) {
                String[] pair = words[place].split("=", 2);
                if (pair[0].equals("commit")) commits = true;
                else if (pair[0].equals("revoke.ms")) revokeMs = Long.parseLong(pair[1]);
                else settings.put(pair[0], pair[1]);
            }
            if (commits) {
                settings.put("enable.auto.commit", "false");
                settings.put("auto.offset.reset", "earliest");
                settings.put("max.poll.records", "50");
            }
            settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
            settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        }

        @Override
        public void run() {
            try (KafkaConsumer<byte[], byte[]> own = new KafkaConsumer<>(settings)) {
                consumer = own;
                if (topic.startsWith("~")) consumer.subscribe(new SubscriptionPattern(topic.substring(1)), this);
                else consumer.subscribe(List.of(topic), this);
                while (running) turn(consumer.poll(Duration.ofMillis(50)));
            } catch (FencedInstanceIdException | UnreleasedInstanceIdException refused) {
                tell("failed", List.of());
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
            tell("closed", List.of());
        }

        private void turn(ConsumerRecords<byte[], byte[]> records) throws InterruptedException {
            if (!subscribes.isEmpty()) {
                consumer.subscribe(List.of(subscribes), this);
                subscribes = "";
            }
            if (!commits) return;
            if (trouble.equals("rewind")) {
                consumer.seekToBeginning(consumer.assignment());
                consumer.assignment().forEach(consumer::position);
                consumer.commitSync();
                trouble = "hang";
            }
            if (trouble.equals("hang")) consumer.pause(consumer.assignment());
            else if (!records.isEmpty()) consumer.commitSync();
            if (trouble.equals("slow")) Thread.sleep(1000);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            tell("assigned", partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            tell("revoked", partitions);
            try {
                if (running) Thread.sleep(revokeMs);
            } catch (InterruptedException never) {
                throw new IllegalStateException(never);
            }
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            tell("lost", partitions);
        }

        private void tell(String what, Collection<TopicPartition> partitions) {
            int generation = what.equals("closed") || what.equals("failed") ? -1 : consumer.groupMetadata().generationId();
            String listed = partitions.stream().map(TopicPartition::partition).sorted().map(String::valueOf).collect(Collectors.joining(" "));
            synchronized (System.out) {
                System.out.println(System.currentTimeMillis() + " " + key + " " + what + " " + generation + " " + listed);
            }
        }
    }
}
