package main

import (
	"context"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// seen is what handlers have seen: how many jobs, the sum of their numbers, and when the first and the latest began.
type seen struct {
	lock   sync.Mutex
	totals totals
	begun  chan float64
}

type totals struct {
	First float64 `json:"first"`
	Last  float64 `json:"last"`
	Count int     `json:"count"`
	Sum   int     `json:"sum"`
}

func (s *seen) add(n int) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.totals.Last = now()
	if s.totals.Count == 0 {
		s.totals.First = s.totals.Last
	}
	s.totals.Count++
	s.totals.Sum += n
	if s.begun != nil {
		s.begun <- s.totals.Last
	}
}

func (s *seen) read() totals {
	s.lock.Lock()
	defer s.lock.Unlock()
	return s.totals
}

// handler does nothing with a job.
type handler struct {
	river.WorkerDefaults[nothing]
	seen *seen
}

func (h *handler) Work(_ context.Context, job *river.Job[nothing]) error {
	h.seen.add(job.Args.N)
	return nil
}

// newWorker returns a client that submits and, once started, works.
func newWorker(ctx context.Context, own settings, seen *seen) (*river.Client[pgx.Tx], error) {
	pool, err := connect(ctx, max(own.Pool, 4))
	if err != nil {
		return nil, err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &handler{seen: seen})
	return river.NewClient(riverpgxv5.New(pool), &river.Config{
		FetchCooldown:     time.Duration(own.FetchCooldown) * time.Millisecond,
		FetchPollInterval: time.Duration(own.FetchPollInterval) * time.Millisecond,
		// Its own logger writes to the standard output, where the messages of this part are.
		Logger:  slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: own.Workers}},
		Workers: workers,
	})
}

// work does the jobs when it is told to, and says how much it has done, until it is told to end.
func work(ctx context.Context, own settings) error {
	seen := &seen{}
	client, err := newWorker(ctx, own, seen)
	if err != nil {
		return err
	}
	measurer := newMeasurer()
	if err := measurer.begin(); err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	go func() {
		told := 0
		for range time.Tick(2 * time.Millisecond) {
			if totals := seen.read(); totals.Count != told {
				told = totals.Count
				_ = measurer.send(totals)
			}
		}
	}()
	measurer.end()
	return client.Stop(ctx)
}

// start inserts one job after another, each when the handler of the one before has begun and its end is known.
func start(ctx context.Context, own settings) error {
	seen := &seen{begun: make(chan float64, 1)}
	client, err := newWorker(ctx, own, seen)
	if err != nil {
		return err
	}
	ends, cancel := client.Subscribe(river.EventKindJobCompleted)
	defer cancel()
	if err := client.Start(ctx); err != nil {
		return err
	}
	measurer := newMeasurer()
	if err := measurer.begin(); err != nil {
		return err
	}
	var times []float64
	for n := range own.Count {
		begin := now()
		if _, err := client.Insert(ctx, own.job(n), nil); err != nil {
			return err
		}
		times = append(times, <-seen.begun-begin)
		<-ends
	}
	if err := measurer.send(map[string]any{"times": times}); err != nil {
		return err
	}
	measurer.end()
	return client.Stop(ctx)
}
