package main

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

func cluster(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		found, err := admin.Metadata(ctx)
		if err != nil {
			return nil, err
		}
		brokers, topics := [][3]any{}, [][2]any{}
		for _, broker := range found.Brokers {
			brokers = append(brokers, [3]any{broker.NodeID, broker.Host, broker.Port})
		}
		for name, topic := range found.Topics {
			topics = append(topics, [2]any{name, len(topic.Partitions)})
		}
		return map[string]any{"brokers": brokers, "topics": topics}, nil
	})
}

func offsets(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		low, err := admin.ListStartOffsets(ctx, request.Topic)
		if err != nil {
			return nil, err
		}
		high, err := admin.ListEndOffsets(ctx, request.Topic)
		if err != nil {
			return nil, err
		}
		timed, err := admin.ListOffsetsAfterMilli(ctx, request.Timestamp, request.Topic)
		if err != nil {
			return nil, err
		}
		ends, times := []map[string]any{}, []map[string]any{}
		for partition, end := range high[request.Topic] {
			first := low[request.Topic][partition].Offset
			ends = append(ends, map[string]any{"partition": partition, "low": first, "high": end.Offset})
			at := timed[request.Topic][partition].Offset
			times = append(times, map[string]any{"partition": partition, "offset": at})
		}
		return map[string]any{"ends": ends, "timed": times}, nil
	})
}

func createTopic(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		configs := map[string]*string{}
		for key, value := range request.Configs {
			configs[key] = &value
		}
		_, err := admin.CreateTopic(ctx, request.Partitions, -1, configs, request.Topic)
		return struct{}{}, err
	})
}

func addPartitions(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		answers, err := admin.UpdatePartitions(ctx, request.Total, request.Topic)
		if err != nil {
			return nil, err
		}
		return struct{}{}, answers.Error()
	})
}

func deleteTopic(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteTopic(ctx, request.Topic)
		return struct{}{}, err
	})
}

func topicConfig(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeTopicConfigs(ctx, request.Topic)
		if err != nil {
			return nil, err
		}
		resource, err := found.On(request.Topic, nil)
		if err != nil {
			return nil, err
		}
		pairs := [][2]any{}
		for _, config := range resource.Configs {
			pairs = append(pairs, [2]any{config.Key, config.Value})
		}
		return pairs, resource.Err
	})
}

func setTopicConfig(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		change := []kadm.AlterConfig{{Op: kadm.SetConfig, Name: request.Key, Value: &request.Value}}
		answers, err := admin.AlterTopicConfigs(ctx, change, request.Topic)
		if err != nil {
			return nil, err
		}
		answer, err := answers.On(request.Topic, nil)
		if err != nil {
			return nil, err
		}
		return struct{}{}, answer.Err
	})
}

func groupIDs(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		found, err := admin.ListGroups(ctx)
		return found.Groups(), err
	})
}

func groupState(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		found, err := admin.DescribeGroups(ctx, request.Group)
		if err != nil {
			return nil, err
		}
		return found[request.Group].State, found[request.Group].Err
	})
}

func deleteGroup(ctx context.Context, request Request) (any, error) {
	return withAdmin(request, func(admin *kadm.Client) (any, error) {
		_, err := admin.DeleteGroup(ctx, request.Group)
		return struct{}{}, err
	})
}
