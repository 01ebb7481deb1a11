import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import org.apache.kafka.common.utils.internals.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;
import org.apache.kafka.tools.consumer.group.ShareGroupCommand;
import org.apache.kafka.tools.streams.StreamsGroupCommand;

/** Kafka's own tools for groups in one process: a line "consumer|share|streams ARGUMENT ..." each; "---" ends an answer. */
public class GroupTools {
    private static class Ended extends RuntimeException { }

    public static void main(String[] arguments) throws Exception {
        // Some of them end the process after each use.
        Exit.setExitProcedure((status, message) -> {
            throw new Ended();
        });
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            try {
                run(words[0], Arrays.copyOfRange(words, 1, words.length));
            } catch (Ended ended) {
                System.out.println();
            }
            System.out.println("---");
            System.out.flush();
        }
    }

    private static void run(String kind, String[] arguments) throws Exception {
        switch (kind) {
            case "consumer" -> ConsumerGroupCommand.main(arguments);
            case "share" -> ShareGroupCommand.main(arguments);
            default -> StreamsGroupCommand.main(arguments);
        }
    }
}
