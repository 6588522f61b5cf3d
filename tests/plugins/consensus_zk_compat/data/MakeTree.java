// Lets Apache Kafka 3.9.2 write every form of znode that is in tree.jsonl: by its AdminClient, and Kafka's own
// encoders for nodes that live too short to be seen (`encoded` lines). README.md has the whole command.

import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.*;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.resource.*;
import org.apache.kafka.common.security.auth.KafkaPrincipal;

public class MakeTree {
    static Map<String, Object> client(String address) {
        return new HashMap<>(Map.of("bootstrap.servers", address, "request.timeout.ms", 10000, "default.api.timeout.ms", 20000));
    }

    static ClientQuotaEntity entity(String... parts) {
        Map<String, String> entries = new HashMap<>();
        for (int i = 0; i < parts.length; i += 2) entries.put(parts[i], parts[i + 1]);
        return new ClientQuotaEntity(entries);
    }

    static ClientQuotaAlteration quota(ClientQuotaEntity entity, Object... pairs) {
        List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) ops.add(new ClientQuotaAlteration.Op((String) pairs[i], (Double) pairs[i + 1]));
        return new ClientQuotaAlteration(entity, ops);
    }

    static AclBinding acl(ResourceType type, String name, PatternType pattern, String principal, String host, AclOperation operation, AclPermissionType permission) {
        return new AclBinding(new ResourcePattern(type, name, pattern), new AccessControlEntry(principal, host, operation, permission));
    }

    static Collection<AlterConfigOp> set(String... pairs) {
        List<AlterConfigOp> ops = new ArrayList<>();
        for (int i = 0; i < pairs.length; i += 2) ops.add(new AlterConfigOp(new ConfigEntry(pairs[i], pairs[i + 1]), AlterConfigOp.OpType.SET));
        return ops;
    }

    static void wait(org.apache.kafka.common.KafkaFuture<?> future) throws Exception {
        future.get(30, TimeUnit.SECONDS);
    }

    public static void main(String[] args) throws Exception {
        String address = args[0], sasl = args[1];
        int other = Integer.parseInt(args[2]);
        try (Admin admin = Admin.create(client(address))) {
            wait(admin.createTopics(List.of(
                new NewTopic("orders", Map.of(0, List.of(1, other), 1, List.of(other, 1), 2, List.of(1, other))).configs(Map.of("retention.ms", "60000", "cleanup.policy", "compact,delete")),
                new NewTopic("plain", 1, (short) 1),
                new NewTopic("a.b_c-1", Map.of(0, List.of(1))),
                new NewTopic("many", new HashMap<>() {{ for (int i = 0; i < 12; i++) put(i, List.of(1)); }}),
                new NewTopic("moving", Map.of(0, List.of(1), 1, List.of(1))),
                new NewTopic("doomed", Map.of(0, List.of(1, other)))
            )).all());
            wait(admin.createPartitions(Map.of("a.b_c-1", NewPartitions.increaseTo(2, List.of(List.of(1))))).all());
            wait(admin.incrementalAlterConfigs(Map.of(
                new ConfigResource(ConfigResource.Type.TOPIC, "orders"), set("retention.ms", "70000", "min.insync.replicas", "2"),
                new ConfigResource(ConfigResource.Type.TOPIC, "a.b_c-1"), set("compression.type", "zstd"),
                new ConfigResource(ConfigResource.Type.BROKER, "1"), set("log.cleaner.threads", "2"),
                new ConfigResource(ConfigResource.Type.BROKER, ""), set("log.retention.ms", "123456789")
            )).all());
            wait(admin.alterClientQuotas(List.of(
                quota(entity("user", "alice"), "producer_byte_rate", 1024.0, "consumer_byte_rate", 12345678.0, "request_percentage", 12.5, "controller_mutation_rate", 12345678.0),
                quota(entity("user", null), "producer_byte_rate", 10.0),
                quota(entity("client-id", "app*+ é/1"), "consumer_byte_rate", 20.0),
                quota(entity("client-id", null), "request_percentage", 0.0001),
                quota(entity("user", "bob", "client-id", "app"), "producer_byte_rate", 30.0),
                quota(entity("user", "bob", "client-id", null), "producer_byte_rate", 31.0),
                quota(entity("user", null, "client-id", "app"), "producer_byte_rate", 32.0),
                quota(entity("user", null, "client-id", null), "request_percentage", 200.0),
                quota(entity("ip", "127.0.0.1"), "connection_creation_rate", 10.0),
                quota(entity("ip", null), "connection_creation_rate", 100.0)
            )).all());
            for (var mechanism : List.of(ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)) {
                wait(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("alice",
                    new ScramCredentialInfo(mechanism, 4096), "secret".getBytes(StandardCharsets.UTF_8), "salt".getBytes(StandardCharsets.UTF_8)))).all());
            }
            wait(admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion("CN=ö,O=a b",
                new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192), "x".getBytes(StandardCharsets.UTF_8), "y".getBytes(StandardCharsets.UTF_8)))).all());
            wait(admin.createAcls(List.of(
                acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW),
                acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:bob", "10.0.0.1", AclOperation.ALL, AclPermissionType.DENY),
                acl(ResourceType.TOPIC, "*", PatternType.LITERAL, "User:*", "*", AclOperation.DESCRIBE, AclPermissionType.ALLOW),
                acl(ResourceType.TOPIC, "ord", PatternType.PREFIXED, "User:CN=é", "*", AclOperation.WRITE, AclPermissionType.ALLOW),
                acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*", AclOperation.CLUSTER_ACTION, AclPermissionType.ALLOW),
                acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*", AclOperation.IDEMPOTENT_WRITE, AclPermissionType.ALLOW),
                acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*", AclOperation.ALTER_CONFIGS, AclPermissionType.ALLOW),
                acl(ResourceType.CLUSTER, "kafka-cluster", PatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE_CONFIGS, AclPermissionType.ALLOW),
                acl(ResourceType.GROUP, "group", PatternType.LITERAL, "User:alice", "*", AclOperation.DELETE, AclPermissionType.ALLOW),
                acl(ResourceType.TRANSACTIONAL_ID, "txn", PatternType.PREFIXED, "User:alice", "*", AclOperation.CREATE, AclPermissionType.ALLOW),
                acl(ResourceType.DELEGATION_TOKEN, "token", PatternType.LITERAL, "User:alice", "*", AclOperation.ALTER, AclPermissionType.ALLOW),
                acl(ResourceType.USER, "User:bob", PatternType.LITERAL, "User:alice", "*", AclOperation.CREATE_TOKENS, AclPermissionType.ALLOW),
                acl(ResourceType.USER, "User:bob", PatternType.LITERAL, "User:alice", "*", AclOperation.DESCRIBE_TOKENS, AclPermissionType.ALLOW)
            )).all());
        }
        var secured = client(sasl);
        secured.put("security.protocol", "SASL_PLAINTEXT");
        secured.put("sasl.mechanism", "SCRAM-SHA-256");
        secured.put("sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"alice\" password=\"secret\";");
        try (Admin admin = Admin.create(secured)) {
            wait(admin.createDelegationToken(new CreateDelegationTokenOptions().maxlifeTimeMs(86400000L)
                .renewers(List.of(new KafkaPrincipal("User", "bob"), new KafkaPrincipal("User", "carol")))).delegationToken());
        }
        try (Admin admin = Admin.create(client(address))) {
            wait(admin.alterPartitionReassignments(Map.of(
                new TopicPartition("moving", 0), Optional.of(new NewPartitionReassignment(List.of(other))))).all());
            wait(admin.deleteTopics(List.of("doomed")).all());
        }
    }
}
