package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	fencedStatus = 3
	failedStatus = 4
)

// copier copies a topic in transactions, the group's offsets in each of them, until stdin ends. It prints the lines that
// campaigns/transactions/programs.py reads, and ends with 3 if it is fenced, 4 if it fails.
type copier struct {
	request Request
	session *kgo.GroupTransactSession
	fate    *rand.Rand
	out     *bufio.Writer
	held    *heldPartitions
}

// heldPartitions counts the partitions of a consumer; its callbacks come from the group's goroutine.
type heldPartitions struct {
	count atomic.Int32
	told  int32
}

func (h *heldPartitions) options() []kgo.Opt {
	change := func(sign int32) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
			for _, partitions := range topics {
				h.count.Add(sign * int32(len(partitions)))
			}
		}
	}
	return []kgo.Opt{
		kgo.OnPartitionsAssigned(change(1)), kgo.OnPartitionsRevoked(change(-1)), kgo.OnPartitionsLost(change(-1)),
	}
}

func (c *copier) say(format string, values ...any) {
	fmt.Fprintf(c.out, format+"\n", values...)
	c.out.Flush()
}

func (c *copier) end(err error) {
	for _, fence := range []error{kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping} {
		if errors.Is(err, fence) || strings.Contains(err.Error(), fence.(*kerr.Error).Message) {
			c.say("fenced %s", strings.Join(strings.Fields(err.Error()), " "))
			os.Exit(fencedStatus)
		}
	}
	c.say("failed %s", strings.Join(strings.Fields(err.Error()), " "))
	os.Exit(failedStatus)
}

func transactionOptions(request Request) []kgo.Opt {
	return dialled(request,
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.TransactionalID(request.TransactionalID),
		kgo.TransactionTimeout(time.Duration(request.TransactionTimeout)*time.Millisecond),
		kgo.SessionTimeout(time.Duration(request.SessionTimeout)*time.Millisecond),
		kgo.RebalanceTimeout(10*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ProducerLinger(2*time.Millisecond),
		kgo.ProduceRequestTimeout(1500*time.Millisecond),
		kgo.RequestTimeoutOverhead(500*time.Millisecond),
		kgo.DialTimeout(2*time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.RequestRetries(1000),
		kgo.RetryTimeout(60*time.Second),
		kgo.RetryBackoffFn(func(int) time.Duration { return 50 * time.Millisecond }),
	)
}

func copyTopic(ctx context.Context, request Request) (any, error) {
	held := &heldPartitions{}
	session, err := kgo.NewGroupTransactSession(append(transactionOptions(request), held.options()...)...)
	if err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	c := &copier{request, session, rand.New(rand.NewSource(request.Seed)), bufio.NewWriter(os.Stdout), held}
	// Without this the producer id is asked for with the first record, and the predecessor would not be fenced before.
	if _, _, err := session.Client().ProducerID(ctx); err != nil {
		c.end(err)
	}
	c.say("ready")
	for {
		select {
		case <-ended:
			session.Close()
			c.say("ended")
			os.Exit(0)
		default:
		}
		poll, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		records := session.PollRecords(poll, request.BatchRecords).Records()
		cancel()
		if count := held.count.Load(); count != held.told {
			held.told = count
			c.say("holds %d", count)
		}
		if len(records) > 0 {
			c.transaction(ctx, records)
		}
	}
}

func (c *copier) transaction(ctx context.Context, records []*kgo.Record) {
	if err := c.session.Begin(); err != nil {
		c.end(err)
	}
	c.say("began %d", len(records))
	doomed := c.fate.Float64() < c.request.AbortShare
	var lock sync.Mutex
	var failed error
	var places []string
	for _, record := range records {
		made := &kgo.Record{Topic: c.request.Output, Partition: record.Partition, Key: record.Key, Value: record.Value}
		if doomed {
			made.Headers = []kgo.RecordHeader{{Key: "fate", Value: []byte("abort")}}
		}
		c.session.Produce(ctx, made, func(record *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil {
				failed = err
			} else {
				places = append(places, fmt.Sprintf("%d:%d", record.Partition, record.Offset))
			}
		})
	}
	if err := c.session.Client().Flush(ctx); err != nil {
		c.end(err)
	}
	time.Sleep(time.Duration(c.fate.Float64() * c.request.PauseMs * float64(time.Millisecond)))
	if errors.Is(failed, kerr.ProducerFenced) {
		c.end(failed)
	}
	committed, err := c.session.End(ctx, kgo.TransactionEndTry(!doomed && failed == nil))
	switch {
	case err != nil:
		c.end(err)
	case doomed && failed == nil:
		c.say("aborted %s", strings.Join(places, " "))
	case committed:
		c.say("committed %d", len(records))
	case failed != nil:
		c.say("retried %s", strings.Join(strings.Fields(failed.Error()), " "))
	default:
		c.say("retried a rebalance came between")
	}
}
