// One operation with franz-go: a JSON request on stdin, a JSON answer as the last line of stdout. Bytes are base64.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Sample is a record to send; a header is a pair of its name and its value.
type Sample struct {
	Key       []byte              `json:"key"`
	Value     []byte              `json:"value"`
	Headers   [][]json.RawMessage `json:"headers"`
	Timestamp int64               `json:"timestamp"`
	Partition int32               `json:"partition"`
}

// Request holds the arguments of every operation.
type Request struct {
	Operation      string            `json:"operation"`
	Bootstrap      string            `json:"bootstrap"`
	Topic          string            `json:"topic"`
	Group          string            `json:"group"`
	Samples        []Sample          `json:"samples"`
	Codec          string            `json:"codec"`
	Acks           int               `json:"acks"`
	Idempotent     bool              `json:"idempotent"`
	Count          int               `json:"count"`
	WaitMs         int64             `json:"waitMs"`
	SessionTimeout int64             `json:"sessionTimeout"`
	Protocol       string            `json:"protocol"`
	Assignor       string            `json:"assignor"`
	InstanceID     string            `json:"instanceId"`
	Regex          bool              `json:"regex"`
	Timestamp      int64             `json:"timestamp"`
	Partitions     int32             `json:"partitions"`
	Total          int               `json:"total"`
	Configs        map[string]string `json:"configs"`
	Key            string            `json:"key"`
	Value          string            `json:"value"`

	Output             string  `json:"output"`
	TransactionalID    string  `json:"transactionalId"`
	TransactionTimeout int64   `json:"transactionTimeout"`
	BatchRecords       int     `json:"batchRecords"`
	PauseMs            float64 `json:"pauseMs"`
	AbortShare         float64 `json:"abortShare"`
	Seed               int64   `json:"seed"`
	Turns              []Turn  `json:"turns"`
	Isolation          string  `json:"isolation"`

	Access Access `json:"access"`
}

type operation func(context.Context, Request) (any, error)

var operations = map[string]operation{
	"produce":        produce,
	"copy":           copyTopic,
	"transact":       transact,
	"fence":          fence,
	"consume":        consume,
	"member":         member,
	"cluster":        cluster,
	"offsets":        offsets,
	"createTopic":    createTopic,
	"addPartitions":  addPartitions,
	"deleteTopic":    deleteTopic,
	"topicConfig":    topicConfig,
	"setTopicConfig": setTopicConfig,
	"groupIds":       groupIDs,
	"groupState":     groupState,
	"deleteGroup":    deleteGroup,
}

func produce(ctx context.Context, request Request) (any, error) {
	options := dialled(request,
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[request.Codec]),
		kgo.RequiredAcks(acks[request.Acks]),
	)
	if !request.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(request.Samples))
	for _, sample := range request.Samples {
		headers, err := headersOf(sample.Headers)
		if err != nil {
			return nil, err
		}
		records = append(records, &kgo.Record{
			Topic: request.Topic, Partition: sample.Partition, Key: sample.Key, Value: sample.Value,
			Headers: headers, Timestamp: time.UnixMilli(sample.Timestamp),
		})
	}
	return struct{}{}, client.ProduceSync(ctx, records...).FirstErr()
}

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

var acks = map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}

func headersOf(pairs [][]json.RawMessage) ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range pairs {
		var header kgo.RecordHeader
		if err := json.Unmarshal(pair[0], &header.Key); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(pair[1], &header.Value); err != nil {
			return nil, err
		}
		headers = append(headers, header)
	}
	return headers, nil
}

// Row is a record as a consumer got it.
type Row struct {
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Key       []byte   `json:"key"`
	Value     []byte   `json:"value"`
	Headers   [][2]any `json:"headers"`
	Timestamp int64    `json:"timestamp"`
}

func rowOf(record *kgo.Record) Row {
	headers := make([][2]any, 0, len(record.Headers))
	for _, header := range record.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return Row{
		record.Partition, record.Offset, record.Key, record.Value, headers, record.Timestamp.UnixMilli(),
	}
}

func withAdmin(request Request, use func(*kadm.Client) (any, error)) (any, error) {
	client, err := kgo.NewClient(dialled(request)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return use(kadm.NewClient(client))
}

func main() {
	var request Request
	err := json.NewDecoder(os.Stdin).Decode(&request)
	run, known := operations[request.Operation]
	if err == nil && !known {
		err = fmt.Errorf("no operation %q", request.Operation)
	}
	var answer any
	if err == nil {
		answer, err = run(context.Background(), request)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		os.Exit(1)
	}
}
