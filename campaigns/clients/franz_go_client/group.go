package main

import (
	"context"
	"encoding/json"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// The balancers by the names of the assignors they stand for; a server-side one is chosen by its client-side sister.
var balancers = map[string]kgo.GroupBalancer{
	"": kgo.CooperativeStickyBalancer(), "cooperative-sticky": kgo.CooperativeStickyBalancer(),
	"uniform": kgo.CooperativeStickyBalancer(), "range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(),
}

func groupOptions(request Request) []kgo.Opt {
	options := dialled(request,
		kgo.ConsumerGroup(request.Group),
		kgo.ConsumeTopics(request.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(time.Duration(request.SessionTimeout)*time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(250*time.Millisecond),
		kgo.FetchMaxWait(300*time.Millisecond),
		kgo.Balancers(balancers[request.Assignor]),
	)
	if request.Protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer())
	}
	if request.Isolation == "read_committed" {
		options = append(options, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if request.InstanceID != "" {
		options = append(options, kgo.InstanceID(request.InstanceID))
	}
	if request.Regex {
		options = append(options, kgo.ConsumeRegex())
	}
	return options
}

// consumeUntil gives each poll's records to take, and commits them before a rebalance may go on.
func consumeUntil(ctx context.Context, client *kgo.Client, most func() int, take func([]*kgo.Record)) error {
	for ctx.Err() == nil && most() > 0 {
		poll, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		records := client.PollRecords(poll, most()).Records()
		cancel()
		if len(records) > 0 {
			take(records)
		}
		client.AllowRebalance()
	}
	return nil
}

func consume(ctx context.Context, request Request) (any, error) {
	client, err := kgo.NewClient(groupOptions(request)...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	bounded, cancel := context.WithTimeout(ctx, time.Duration(request.WaitMs)*time.Millisecond)
	defer cancel()
	rows := []Row{}
	left := func() int { return request.Count - len(rows) }
	err = consumeUntil(bounded, client, left, func(records []*kgo.Record) {
		for _, record := range records {
			rows = append(rows, rowOf(record))
		}
	})
	if err == nil {
		err = client.CommitUncommittedOffsets(ctx)
	}
	return map[string]any{"records": rows}, err
}

func untilTerminated() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM)
}

func thousand() int { return 1000 }

type printer struct {
	lock sync.Mutex
	out  *json.Encoder
}

// say prints an event as Kafka's VerifiableConsumer words it.
func (p *printer) say(name string, fields map[string]any) {
	p.lock.Lock()
	defer p.lock.Unlock()
	event := map[string]any{"name": name, "timestamp": time.Now().UnixMilli()}
	for key, value := range fields {
		event[key] = value
	}
	_ = p.out.Encode(event)
}

func (p *printer) partitions(name string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, _ *kgo.Client, changed map[string][]int32) {
		pairs := []map[string]any{}
		for topic, partitions := range changed {
			for _, partition := range partitions {
				pairs = append(pairs, map[string]any{"topic": topic, "partition": partition})
			}
		}
		p.say(name, map[string]any{"partitions": pairs})
	}
}

// member is a member of a group that tells what becomes of it, and commits what it got after each poll, until SIGTERM.
func member(ctx context.Context, request Request) (any, error) {
	terminated, stop := untilTerminated()
	defer stop()
	events := &printer{out: json.NewEncoder(os.Stdout)}
	options := append(groupOptions(request),
		kgo.OnPartitionsAssigned(events.partitions("partitions_assigned")),
		kgo.OnPartitionsRevoked(events.partitions("partitions_revoked")),
		kgo.OnPartitionsLost(events.partitions("partitions_lost")))
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	events.say("startup_complete", nil)
	_ = consumeUntil(terminated, client, thousand, func(records []*kgo.Record) {
		events.say("records_consumed", consumed(records))
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			events.say("offsets_committed", map[string]any{"success": false, "error": err.Error()})
		} else {
			events.say("offsets_committed", committed(records))
		}
	})
	client.Close()
	events.say("shutdown_complete", nil)
	os.Exit(0)
	return nil, nil
}

type place struct {
	topic     string
	partition int32
}

type span struct{ count, first, last int64 }

func spans(records []*kgo.Record) map[place]*span {
	found := map[place]*span{}
	for _, record := range records {
		at := place{record.Topic, record.Partition}
		if found[at] == nil {
			found[at] = &span{first: record.Offset}
		}
		found[at].count++
		found[at].last = record.Offset
	}
	return found
}

func consumed(records []*kgo.Record) map[string]any {
	rows := []map[string]any{}
	for at, seen := range spans(records) {
		rows = append(rows, map[string]any{
			"topic": at.topic, "partition": at.partition, "count": seen.count, "minOffset": seen.first, "maxOffset": seen.last,
		})
	}
	return map[string]any{"count": len(records), "partitions": rows}
}

func committed(records []*kgo.Record) map[string]any {
	rows := []map[string]any{}
	for at, seen := range spans(records) {
		rows = append(rows, map[string]any{"topic": at.topic, "partition": at.partition, "offset": seen.last + 1})
	}
	return map[string]any{"success": true, "offsets": rows}
}
