package ps

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"
)

// A server that is away is notified of once, however many calls wait for it, and once more when it
// is back.
func TestOnWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{Async: true})
		f.of(dense(20, 0))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		config := f.clientConfig(0, dense(20, 0))
		var mu sync.Mutex
		var all []Wait
		config.OnWait = func(w Wait) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, w)
		}
		hear := func() []Wait {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		c, err := Dial(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f.kill(1)
		var calls sync.WaitGroup
		calls.Go(func() { c.Pull(ctx, make([]float32, 20), PullOptions{}) })
		calls.Go(func() { c.Push(ctx, filled(20, 1), Gradient{Versions: make(Versions, 2)}) })
		time.Sleep(waitNotice - time.Millisecond)
		if heard := hear(); len(heard) > 0 {
			t.Errorf("heard of %+v too soon", heard)
		}
		time.Sleep(time.Second)
		if heard := hear(); len(heard) != 1 || heard[0].Server != 1 || heard[0].Over || heard[0].Err == nil {
			t.Errorf("heard of %+v", heard)
		}
		f.start(1)
		calls.Wait()
		over := func(w Wait) bool { return w.Over }
		if heard := hear(); len(heard) != 2 || slices.IndexFunc(heard, over) != 1 {
			t.Errorf("heard of %+v", heard)
		}
		c.Pull(ctx, make([]float32, 20), PullOptions{})
		time.Sleep(time.Minute)
		if heard := hear(); len(heard) != 2 {
			t.Errorf("heard of %+v", heard)
		}
	})
}
