import org.apache.kafka.server.common.MetadataVersion;

/** Prints release and level of each metadata.version that brokers of this release may use in production. */
class MetadataVersions {
    public static void main(String[] arguments) {
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            if (!version.isLessThan(MetadataVersion.MINIMUM_VERSION) && version.isProduction()) {
                System.out.println(version.shortVersion() + " " + version.featureLevel());
            }
        }
    }
}
