// Worker for the kind `render`, with a client that was generated from the server's OpenAPI document.
//
// The work is to turn the text of a payload into upper case. Each slot leases a subtask, runs it, and
// reports its end. One goroutine keeps the leases of all slots. SIGTERM lets running subtasks end.
package main

import (
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	keylane "example.com/keylane/client"
)

const slots = 4

type worker struct {
	api *keylane.DefaultAPIService
	// Cancels the tasks of the leases that are held, by the ids of the leases.
	held  map[string]context.CancelFunc
	mutex sync.Mutex
}

func main() {
	stopping, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	configuration := keylane.NewConfiguration()
	configuration.Servers = keylane.ServerConfigurations{{URL: os.Getenv("KEYLANE_SERVER")}}
	if token := os.Getenv("KEYLANE_TOKEN"); token != "" {
		configuration.AddDefaultHeader("Authorization", "Bearer "+token)
	}
	w := &worker{api: keylane.NewAPIClient(configuration).DefaultAPI, held: map[string]context.CancelFunc{}}

	var running sync.WaitGroup
	for range slots {
		running.Go(func() { w.slot(stopping) })
	}
	ended := make(chan struct{})
	go func() { running.Wait(); close(ended) }()
	w.keepLeases(ended)
}

// slot does subtasks one after another.
func (w *worker) slot(stopping context.Context) {
	for stopping.Err() == nil {
		leases, err := w.claim(stopping)
		if err != nil && stopping.Err() == nil {
			log.Printf("no work: %v; trying again", err)
			time.Sleep(time.Second)
		}
		for _, lease := range leases {
			w.do(lease)
		}
	}
}

func (w *worker) claim(stopping context.Context) ([]keylane.Lease, error) {
	request := keylane.NewClaimRequest([]string{"render"})
	request.SetWaitMs(20_000)
	request.SetWorker("go-worker")
	claim, _, err := w.api.PostV1Leases(stopping).ClaimRequest(*request).Execute()
	if err != nil {
		return nil, err
	}
	return claim.Leases, nil
}

func (w *worker) do(lease keylane.Lease) {
	task, cancel := context.WithCancel(context.Background())
	defer cancel()
	w.mutex.Lock()
	w.held[lease.Id] = cancel
	w.mutex.Unlock()

	end := keylane.NewLeaseEnd(lease.Id)
	if result, err := render(task, lease); err != nil {
		end.SetError(err.Error())
	} else {
		end.Result = result
	}
	// Of a lost lease the result does not count: another worker may have the subtask.
	if task.Err() == nil {
		w.report(*end)
	}
	w.mutex.Lock()
	delete(w.held, lease.Id)
	w.mutex.Unlock()
}

func render(_ context.Context, lease keylane.Lease) (any, error) {
	payload, _ := lease.Payload.(map[string]any)
	text, isText := payload["text"].(string)
	if !isText {
		return nil, errors.New("the payload has no text")
	}
	return map[string]any{"text": strings.ToUpper(text), "fence": lease.Fence}, nil
}

// report repeats a report until the server has it. The lease stays meanwhile, also over a restart of the server.
func (w *worker) report(end keylane.LeaseEnd) {
	for {
		batch := keylane.NewCompleteBatch([]keylane.LeaseEnd{end})
		results, _, err := w.api.PostV1LeasesComplete(context.Background()).CompleteBatch(*batch).Execute()
		if err == nil && results.Items[0].Status < 500 {
			return
		}
		log.Printf("not reported yet: %v", err)
		time.Sleep(time.Second)
	}
}

// keepLeases sends heartbeats, and cancels tasks whose leases have ended.
func (w *worker) keepLeases(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(2 * time.Second):
			w.heartbeat()
		}
	}
}

func (w *worker) heartbeat() {
	w.mutex.Lock()
	var ids []string
	for id := range w.held {
		ids = append(ids, id)
	}
	w.mutex.Unlock()
	if len(ids) == 0 {
		return
	}
	results, _, err := w.api.PostV1LeasesHeartbeat(context.Background()).HeartbeatBatch(*keylane.NewHeartbeatBatch(ids)).Execute()
	if err != nil {
		log.Printf("no heartbeat: %v", err)
		return
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	for place, item := range results.Items {
		if cancel := w.held[ids[place]]; cancel != nil && (item.Status == 404 || item.Status == 409) {
			cancel()
		}
	}
}
