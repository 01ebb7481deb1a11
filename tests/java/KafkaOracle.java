import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/** Answers the lines of `rebalancer assign` and `rebalancer place` with Kafka's own classes; for tests. */
public class KafkaOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
            out.flush();
        }
    }

    private static ObjectNode answer(JsonNode line) {
        ObjectNode answer = JSON.createObjectNode();
        try {
            if (line.has("subscription")) subscriptionBytes(line.get("subscription"), line.get("version").asInt(), answer);
            else if (line.has("assigned")) assignmentBytes(line, answer);
            else if (line.has("brokers")) place(line, answer);
            else assign(line, answer);
        } catch (InvocationTargetException error) {
            answer.put("error", String.valueOf(error.getCause()));
        } catch (Exception error) {
            answer.put("error", String.valueOf(error));
        }
        return answer;
    }

    private static void assign(JsonNode line, ObjectNode answer) throws Exception {
        Map<String, List<PartitionInfo>> partitions = partitions(line);
        String strategy = line.get("strategy").asText();
        long best = Long.MAX_VALUE;
        Object result = null;
        for (int round = 0; round < line.path("repeat").asInt(1); round++) {
            Map<String, Subscription> subscriptions = subscriptions(line, strategy.equals("sticky"));
            Object assignor = assignor(strategy);
            Method assign = assignor.getClass().getMethod("assignPartitions", Map.class, Map.class);
            assign.setAccessible(true);
            long started = System.nanoTime();
            result = assign.invoke(assignor, partitions, subscriptions);
            best = Math.min(best, System.nanoTime() - started);
        }
        answer.put("elapsed_ms", best / 1e6);
        if (line.path("quiet").asBoolean()) return;
        ObjectNode assignment = answer.putObject("assignment");
        for (Object entry : ((Map<?, ?>) result).entrySet()) {
            ArrayNode list = assignment.putArray((String) ((Map.Entry<?, ?>) entry).getKey());
            for (Object tp : (Collection<?>) ((Map.Entry<?, ?>) entry).getValue())
                list.addArray().add(((TopicPartition) tp).topic()).add(((TopicPartition) tp).partition());
        }
    }

    private static Object assignor(String strategy) {
        switch (strategy) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            default: return new CooperativeStickyAssignor();
        }
    }

    /** As Kafka does before it calls an assignor: only topics that exist and that somebody reads. */
    private static Map<String, List<PartitionInfo>> partitions(JsonNode line) {
        Set<String> read = new HashSet<>();
        line.get("members").forEach(member -> member.get("topics").forEach(topic -> read.add(topic.asText())));
        Map<String, List<PartitionInfo>> partitions = new HashMap<>();
        for (String topic : read) {
            int count = line.get("partitions_per_topic").path(topic).asInt(0);
            JsonNode racks = line.path("partition_racks").path(topic);
            List<PartitionInfo> infos = new ArrayList<>();
            for (int partition = 0; partition < count; partition++) {
                List<Node> replicas = new ArrayList<>();
                for (JsonNode rack : racks.path(partition))
                    replicas.add(new Node(replicas.size(), "host", 9092, rack.isNull() ? null : rack.asText()));
                Node[] nodes = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic, partition, Node.noNode(), nodes, nodes));
            }
            if (count > 0) partitions.put(topic, infos);
        }
        return partitions;
    }

    private static Map<String, Subscription> subscriptions(JsonNode line, boolean userData) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        line.get("members").fields().forEachRemaining(entry -> {
            Subscription subscription = subscription(entry.getValue(), userData);
            JsonNode instance = entry.getValue().path("group_instance_id");
            subscription.setGroupInstanceId(instance.isTextual() ? Optional.of(instance.asText()) : Optional.empty());
            subscriptions.put(entry.getKey(), subscription);
        });
        return subscriptions;
    }

    private static Subscription subscription(JsonNode member, boolean userData) {
        List<String> topics = new ArrayList<>();
        member.get("topics").forEach(topic -> topics.add(topic.asText()));
        List<TopicPartition> owned = new ArrayList<>();
        for (JsonNode pair : member.path("owned_partitions")) owned.add(new TopicPartition(pair.get(0).asText(), pair.get(1).asInt()));
        int generation = member.path("generation_id").asInt(-1);
        JsonNode rack = member.path("rack_id");
        return new Subscription(topics, userData ? stickyData(owned, generation) : null, userData ? List.of() : owned,
            generation, rack.isTextual() ? Optional.of(rack.asText()) : Optional.empty());
    }

    /** User data v1 of the sticky assignor: topics with their partitions, then the generation. */
    private static ByteBuffer stickyData(List<TopicPartition> owned, int generation) {
        Map<String, List<Integer>> byTopic = new LinkedHashMap<>();
        owned.forEach(tp -> byTopic.computeIfAbsent(tp.topic(), topic -> new ArrayList<>()).add(tp.partition()));
        int size = 8 + 4 * owned.size();
        for (String topic : byTopic.keySet()) size += 6 + topic.getBytes(StandardCharsets.UTF_8).length;
        ByteBuffer buffer = ByteBuffer.allocate(size);
        buffer.putInt(byTopic.size());
        byTopic.forEach((topic, numbers) -> {
            byte[] name = topic.getBytes(StandardCharsets.UTF_8);
            buffer.putShort((short) name.length).put(name).putInt(numbers.size());
            numbers.forEach(buffer::putInt);
        });
        buffer.putInt(generation).flip();
        return buffer;
    }

    private static void subscriptionBytes(JsonNode member, int version, ObjectNode answer) {
        ByteBuffer buffer = ConsumerProtocol.serializeSubscription(subscription(member, false), (short) version);
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        answer.put("bytes", java.util.HexFormat.of().formatHex(bytes));
        Subscription sticky = subscription(member, true);
        answer.put("user_data", java.util.HexFormat.of().formatHex(sticky.userData().array()));
    }

    /** The bytes of an assignment, and the user data of a sticky member that was given it. */
    private static void assignmentBytes(JsonNode line, ObjectNode answer) {
        List<TopicPartition> assigned = new ArrayList<>();
        for (JsonNode tp : line.get("assigned")) assigned.add(new TopicPartition(tp.get(0).asText(), tp.get(1).asInt()));
        Assignment assignment = new Assignment(assigned);
        ByteBuffer buffer = ConsumerProtocol.serializeAssignment(assignment, (short) line.get("version").asInt());
        byte[] bytes = new byte[buffer.remaining()];
        buffer.get(bytes);
        StickyAssignor assignor = new StickyAssignor();
        assignor.onAssignment(assignment, new ConsumerGroupMetadata("g", line.get("generation_id").asInt(), "m", Optional.empty()));
        byte[] userData = assignor.subscriptionUserData(Set.of()).array();
        answer.put("version", line.get("version").asInt());
        answer.put("bytes", java.util.HexFormat.of().formatHex(bytes));
        answer.put("user_data", java.util.HexFormat.of().formatHex(userData));
    }

    private static void place(JsonNode line, ObjectNode answer) throws Exception {
        Class<?> metadata = Class.forName("org.apache.kafka.admin.BrokerMetadata");
        List<Object> brokers = new ArrayList<>();
        for (JsonNode broker : line.get("brokers"))
            brokers.add(metadata.getConstructor(int.class, Optional.class).newInstance(broker.get("broker_id").asInt(),
                broker.path("rack").isTextual() ? Optional.of(broker.get("rack").asText()) : Optional.empty()));
        Method assign = Class.forName("org.apache.kafka.admin.AdminUtils").getMethod("assignReplicasToBrokers",
            Collection.class, int.class, int.class, int.class, int.class);
        Object placed = assign.invoke(null, brokers, line.get("partitions").asInt(), line.get("replication_factor").asInt(),
            line.get("fixed_start_index").asInt(), line.get("start_partition_id").asInt());
        answer.set("replicas", JSON.valueToTree(placed));
    }
}
