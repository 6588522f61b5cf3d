package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// steady sends numbered records at a steady rate, idempotent and with acks=all, over all partitions in turn, until
// stdin ends. It prints a line for each answer, "acked PARTITION NUMBER OFFSET" or "refused PARTITION NUMBER ERROR",
// and at the end "sent COUNT…", by partition.
func steady(ctx context.Context, request Request) (any, error) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(request.Bootstrap, ",")...),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerLinger(2*time.Millisecond),
		// A request is given up after 2 s, and another attempt comes soon: the cluster is measured, not its client.
		kgo.ProduceRequestTimeout(1500*time.Millisecond),
		kgo.RequestTimeoutOverhead(500*time.Millisecond),
		kgo.DialTimeout(2*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	out := bufio.NewWriter(os.Stdout)
	var lock sync.Mutex
	say := func(format string, values ...any) {
		lock.Lock()
		defer lock.Unlock()
		fmt.Fprintf(out, format, values...)
		out.Flush()
	}
	sent := make([]int, request.Partitions)
	total, began := 0, time.Now()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for running := true; running; {
		select {
		case <-ended:
			running = false
		case <-tick.C:
			for due := int(time.Since(began).Seconds()*request.RatePerS) - total; due > 0; due-- {
				partition := int32(total % len(sent))
				number := sent[partition]
				record := &kgo.Record{
					Topic: request.Topic, Partition: partition, Value: []byte(fmt.Sprintf("%d %0100d", number, number)),
				}
				client.Produce(ctx, record, func(record *kgo.Record, err error) {
					if err != nil {
						say("refused %d %d %v\n", partition, number, err)
					} else {
						say("acked %d %d %d\n", partition, number, record.Offset)
					}
				})
				sent[partition]++
				total++
			}
		}
	}
	if err := client.Flush(ctx); err != nil {
		return nil, err
	}
	say("sent %s\n", strings.Trim(fmt.Sprint(sent), "[]"))
	return struct{}{}, nil
}
