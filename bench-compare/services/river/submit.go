package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
)

// nothing is the body of a job, as the other peers have it.
type nothing struct {
	Key string `json:"key"`
	N   int    `json:"n"`
}

func (nothing) Kind() string { return "nothing" }

func (own settings) job(n int) nothing {
	if own.Key != nil {
		return nothing{*own.Key, n}
	}
	return nothing{fmt.Sprintf("k%d", uint64(n)*0x9e3779b9%100_000), n}
}

// submit inserts a share of the jobs: one at a time with the time of each, several, or in chunks.
func submit(ctx context.Context, own settings) error {
	pool, err := connect(ctx, own.Pool)
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := pool.Ping(ctx); err != nil {
		return err
	}
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return err
	}
	measurer := newMeasurer()
	if err := measurer.begin(); err != nil {
		return err
	}
	times := []float64{}
	if own.Chunk > 0 {
		err = insertInChunks(ctx, client, own)
	} else {
		times, err = insertEach(ctx, client, own)
	}
	if err != nil {
		return err
	}
	if err := measurer.send(map[string]any{"end": now(), "times": times}); err != nil {
		return err
	}
	measurer.end()
	return nil
}

func insertInChunks(ctx context.Context, client *river.Client[pgx.Tx], own settings) error {
	for begin := own.From; begin < own.To; begin += own.Chunk {
		var params []river.InsertManyParams
		for n := begin; n < min(begin+own.Chunk, own.To); n++ {
			params = append(params, river.InsertManyParams{Args: own.job(n)})
		}
		if _, err := client.InsertManyFast(ctx, params); err != nil {
			return err
		}
	}
	return nil
}

func insertEach(ctx context.Context, client *river.Client[pgx.Tx], own settings) ([]float64, error) {
	times := make([]float64, own.To-own.From)
	failures := make(chan error, own.AtATime)
	next := atomic.Int64{}
	next.Store(int64(own.From))
	var lines sync.WaitGroup
	for range own.AtATime {
		lines.Go(func() {
			for {
				n := int(next.Add(1)) - 1
				if n >= own.To {
					return
				}
				begin := now()
				if _, err := client.Insert(ctx, own.job(n), nil); err != nil {
					failures <- err
					return
				}
				times[n-own.From] = now() - begin
			}
		})
	}
	lines.Wait()
	close(failures)
	if !own.Timed {
		times = times[:0]
	}
	return times, <-failures
}
