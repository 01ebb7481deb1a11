import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.Readable;

/** Reads lines "MESSAGE VERSION HEX" and answers with Kafka's own reading of these bytes: "HEX JSON"; for tests. */
public class GroupMessages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            String name = "org.apache.kafka.common.message." + words[0] + "Data";
            ApiMessage message = (ApiMessage) Class.forName(name)
                .getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining()) throw new IllegalStateException(bytes.remaining() + " bytes are left of " + line);
            JsonNode json = (JsonNode) Class.forName(name + "JsonConverter")
                .getMethod("write", message.getClass(), short.class).invoke(null, message, version);
            ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] out = new byte[written.remaining()];
            written.get(out);
            System.out.println(HexFormat.of().formatHex(out) + " " + json);
        }
    }
}
