// Prints nodes that live too short to be seen in a tree, or that no present Kafka writes, as Kafka 3.9.2's own encoders
// write them: lines {"path", "data"}. README.md has the whole command.

import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.*;
import kafka.api.LeaderAndIsr;
import kafka.cluster.EndPoint;
import kafka.controller.*;
import kafka.zk.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.feature.*;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.LeaderRecoveryState;
import org.apache.kafka.metadata.migration.ZkMigrationLeadershipState;
import org.apache.kafka.server.common.ProducerIdsBlock;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

public class EncodeNodes {
    static void put(String path, byte[] data) throws Exception {
        var line = new LinkedHashMap<String, String>();
        line.put("path", path);
        line.put("data", new String(data, StandardCharsets.UTF_8));
        System.out.println(new ObjectMapper().writeValueAsString(line));
    }

    static scala.collection.immutable.List<Object> ints(Integer... numbers) {
        return CollectionConverters.asScala(List.<Object>of((Object[]) numbers)).toList();
    }

    static byte[] state(int leader, int epoch, LeaderRecoveryState recovery, Integer... isr) {
        var leaderAndIsr = LeaderAndIsr.apply(leader, epoch, ints(isr), recovery, 0);
        return TopicPartitionStateZNode$.MODULE$.encode(LeaderIsrAndControllerEpoch.apply(leaderAndIsr, 7));
    }

    static scala.collection.immutable.Set<TopicPartition> set(TopicPartition... partitions) {
        return CollectionConverters.asScala(new LinkedHashSet<>(List.of(partitions))).toSet();
    }

    static byte[] broker(int version, String rack, Map<String, SupportedVersionRange> features) {
        var endPoints = CollectionConverters.asScala(List.of(
            new EndPoint("host", 9092, ListenerName.normalised("PLAINTEXT"), SecurityProtocol.PLAINTEXT),
            new EndPoint("::1", 9093, ListenerName.normalised("SSL"), SecurityProtocol.SSL)));
        return BrokerIdZNode$.MODULE$.encode(version, "host", 9092, endPoints, 9999, Option.apply(rack), Features.supportedFeatures(features));
    }

    public static void main(String[] args) throws Exception {
        put("/brokers/topics/t/partitions/0/state", state(1, 3, LeaderRecoveryState.RECOVERING, 1));
        put("/brokers/topics/t/partitions/1/state", state(-1, 4, LeaderRecoveryState.RECOVERED, 1, 2));
        put("/brokers/topics/t/partitions/2/state", state(1, 4, LeaderRecoveryState.RECOVERED));
        for (int version = 2; version <= 5; version++) put("/brokers/ids/" + version, broker(version, "rack", Map.of()));
        put("/brokers/ids/6", broker(5, null, Map.of("group.version", new SupportedVersionRange((short) 0, (short) 1))));
        var moving = new HashMap<TopicPartition, ReplicaAssignment>();
        moving.put(new TopicPartition("t", 0), ReplicaAssignment.apply(ints(1, 2, 3), ints(3), ints(1)));
        moving.put(new TopicPartition("t", 1), ReplicaAssignment.apply(ints(1, 2)));
        put("/brokers/topics/t", TopicZNode$.MODULE$.encode(Option.empty(), CollectionConverters.asScala(moving)));
        put("/brokers/topics/u", TopicZNode$.MODULE$.encode(Option.apply(Uuid.fromString("AAAAAAAAAAAAAAAAAAAABA")), CollectionConverters.asScala(Map.of())));
        put("/controller", ControllerZNode$.MODULE$.encode(3000, 1795889118296L, 5));
        put("/isr_change_notification/isr_change_0000000000", IsrChangeNotificationSequenceZNode$.MODULE$.encode(set(new TopicPartition("t", 0), new TopicPartition("u", 1))));
        put("/log_dir_event_notification/log_dir_event_0000000000", LogDirEventNotificationSequenceZNode$.MODULE$.encode(2));
        put("/admin/preferred_replica_election", PreferredReplicaElectionZNode$.MODULE$.encode(set(new TopicPartition("t", 0), new TopicPartition("u", 1))));
        var asked = new LinkedHashMap<TopicPartition, scala.collection.Seq<Object>>();
        asked.put(new TopicPartition("t", 0), ints(2, 1));
        put("/admin/reassign_partitions", ReassignPartitionsZNode$.MODULE$.encode(CollectionConverters.asScala(asked)));
        var levels = CollectionConverters.asScala(Map.<String, Object>of("group.version", (short) 1));
        put("/feature", FeatureZNode.encode(new FeatureZNode(2, FeatureZNodeStatus.Enabled$.MODULE$, levels)));
        put("/feature", FeatureZNode.encode(new FeatureZNode(1, FeatureZNodeStatus.Disabled$.MODULE$, levels)));
        put("/latest_producer_id_block", ProducerIdBlockZNode.generateProducerIdBlockJson(new ProducerIdsBlock(1, 4000, 1000)));
        put("/migration", MigrationZNode$.MODULE$.encode(new ZkMigrationLeadershipState(3000, 5, 100, 5, 1795889118296L, -1, 9, 3)));
    }
}
