package main

import (
	"context"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Turn is one transaction: what is sent, and how it ends. An offset is a pair of its partition and itself.
type Turn struct {
	Samples []Sample   `json:"samples"`
	Commits bool       `json:"commits"`
	Group   string     `json:"group"`
	Source  string     `json:"source"`
	Offsets [][2]int64 `json:"offsets"`
}

func transactional(ctx context.Context, request Request) (*kgo.Client, error) {
	client, err := kgo.NewClient(dialled(request,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.TransactionalID(request.TransactionalID),
	)...)
	if err == nil {
		_, _, err = client.ProducerID(ctx)
	}
	return client, err
}

func send(ctx context.Context, client *kgo.Client, topic string, samples []Sample) error {
	for _, sample := range samples {
		record := &kgo.Record{Topic: topic, Partition: sample.Partition, Key: sample.Key, Value: sample.Value}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return nil
}

// transact runs one transaction after the other. kgo sends offsets only for a group of its own, so those of a turn are
// sent as requests.
func transact(ctx context.Context, request Request) (any, error) {
	client, err := transactional(ctx, request)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	for _, turn := range request.Turns {
		if err := client.BeginTransaction(); err != nil {
			return nil, err
		}
		if err := send(ctx, client, request.Topic, turn.Samples); err != nil {
			return nil, err
		}
		if turn.Group != "" {
			if err := sendOffsets(ctx, client, request.TransactionalID, turn); err != nil {
				return nil, err
			}
		}
		if err := client.EndTransaction(ctx, kgo.TransactionEndTry(turn.Commits)); err != nil {
			return nil, err
		}
	}
	return struct{}{}, nil
}

func sendOffsets(ctx context.Context, client *kgo.Client, transactionalID string, turn Turn) error {
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = transactionalID, id, epoch, turn.Group
	added, err := add.RequestWith(ctx, client)
	if err != nil || added.ErrorCode != 0 {
		return fmt.Errorf("AddOffsetsToTxn: %v %v", added, err)
	}
	topic := kmsg.NewTxnOffsetCommitRequestTopic()
	topic.Topic = turn.Source
	for _, pair := range turn.Offsets {
		one := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		one.Partition, one.Offset = int32(pair[0]), pair[1]
		topic.Partitions = append(topic.Partitions, one)
	}
	commit := kmsg.NewPtrTxnOffsetCommitRequest()
	commit.TransactionalID, commit.ProducerID, commit.ProducerEpoch = transactionalID, id, epoch
	commit.Group, commit.Topics = turn.Group, append(commit.Topics, topic)
	committed, err := commit.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, one := range committed.Topics[0].Partitions {
		if one.ErrorCode != 0 {
			return fmt.Errorf("TxnOffsetCommit: error %d", one.ErrorCode)
		}
	}
	return nil
}

func fence(ctx context.Context, request Request) (any, error) {
	first, err := transactional(ctx, request)
	if err != nil {
		return nil, err
	}
	defer first.Close()
	if err := first.BeginTransaction(); err != nil {
		return nil, err
	}
	if err := send(ctx, first, request.Topic, request.Samples); err != nil {
		return nil, err
	}
	second, err := transactional(ctx, request)
	if err != nil {
		return nil, err
	}
	defer second.Close()
	text := ""
	if err := first.EndTransaction(ctx, kgo.TryCommit); err != nil {
		text = err.Error()
	}
	return map[string]string{"error": text}, nil
}
