import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.GroupAssignment;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Answers lines of `rebalancer assign` with the brokers' own assignors (KIP-848); for tests. Members, topics and
 * partitions come in the order of the line, so that the order of hash maps decides nothing.
 */
public class ServerAssignors {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println("answer " + JSON.writeValueAsString(assignment(JSON.readTree(line))));
    }

    private static ObjectNode assignment(JsonNode line) throws Exception {
        List<String> topics = new ArrayList<>();
        line.get("partitions_per_topic").fieldNames().forEachRemaining(topics::add);
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new LinkedHashSet<>();
        line.get("members").fields().forEachRemaining(entry -> {
            Set<Uuid> read = new LinkedHashSet<>();
            entry.getValue().get("topics").forEach(topic -> {
                if (topics.contains(topic.asText())) read.add(id(topics, topic.asText()));
            });
            Map<Uuid, Set<Integer>> owned = new LinkedHashMap<>();
            for (JsonNode tp : entry.getValue().path("owned_partitions")) {
                Uuid topic = id(topics, tp.get(0).asText());
                owned.computeIfAbsent(topic, none -> new LinkedHashSet<>()).add(tp.get(1).asInt());
                owners.computeIfAbsent(topic, none -> new HashMap<>()).put(tp.get(1).asInt(), entry.getKey());
            }
            subscriptions.add(read);
            JsonNode instance = entry.getValue().path("group_instance_id");
            members.put(entry.getKey(), new MemberSubscriptionAndAssignmentImpl(Optional.empty(),
                instance.isTextual() ? Optional.of(instance.asText()) : Optional.empty(), read, new Assignment(owned)));
        });
        SubscriptionType type = subscriptions.size() == 1 ? SubscriptionType.HOMOGENEOUS : SubscriptionType.HETEROGENEOUS;
        ConsumerGroupPartitionAssignor assignor =
            line.get("strategy").asText().equals("uniform") ? new UniformAssignor() : new RangeAssignor();
        GroupAssignment assigned = assignor.assign(new GroupSpecImpl(members, type, owners), new SubscribedTopicDescriber() {
            @Override
            public int numPartitions(Uuid topic) {
                return line.get("partitions_per_topic").get(topics.get((int) topic.getLeastSignificantBits() - 1)).asInt();
            }

            @Override
            public Set<String> racksForPartition(Uuid topic, int partition) {
                return Set.of();
            }
        });
        ObjectNode answer = JSON.createObjectNode();
        for (String member : members.keySet()) {
            ArrayNode list = answer.putArray(member);
            if (assigned.members().containsKey(member))
                assigned.members().get(member).partitions().forEach((topic, numbers) -> numbers.forEach(number ->
                    list.addArray().add(topics.get((int) topic.getLeastSignificantBits() - 1)).add(number)));
        }
        return answer;
    }

    /** Small ids: a hash set of them keeps their order. */
    private static Uuid id(List<String> topics, String topic) {
        return new Uuid(0L, topics.indexOf(topic) + 1);
    }
}
