package mesh

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// strangers are headers that know everything of worker 1 that can be guessed.
func strangers() map[string]identity.Header {
	all := make(map[string]identity.Header)
	for name, change := range map[string]func(*identity.Header){
		"no secret":        func(h *identity.Header) { h.Secret = "" },
		"another secret":   func(h *identity.Header) { h.Secret = "a secrex" },
		"another job":      func(h *identity.Header) { h.Job = "uid-2" },
		"a server":         func(h *identity.Header) { h.Role = pod.PS },
		"a user":           func(h *identity.Header) { h.Role = identity.User },
		"another protocol": func(h *identity.Header) { h.Protocol++ },
	} {
		h := worker(1)
		change(&h)
		all[name] = h
	}
	return all
}

// Who does not belong to the job takes nobody's place, whatever it knows of the world, and learns nothing.
func TestStrangerReplacesNobody(t *testing.T) {
	for name, from := range strangers() {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t, 3)
				defer w.close()
				meshes := make([]*Mesh, 3)
				var connecting sync.WaitGroup
				join := func(rank int) {
					connecting.Go(func() {
						m, err := w.nodes[rank].Connect(t.Context(), world(5, rank, 0, 1, 2))
						if err != nil {
							t.Error(err)
						}
						meshes[rank] = m
					})
				}
				join(0)
				join(1)
				synctest.Wait()
				h := greets(5, 1, 0, 1, 0, 3)
				h.from = from
				conn, a := w.greeted(0, h)
				defer conn.Close()
				if a == nil || a.verdict != foreign || a.from != (identity.Header{}) || a.text == "" || strings.Contains(a.text, testSecret) {
					t.Errorf("it is answered %+v", a)
				}
				join(2)
				connecting.Wait()
				if t.Failed() {
					return
				}
				defer closeAll(meshes)
				for i, err := range all(meshes, func(m *Mesh) error { return rounds(m, 1) }) {
					if err != nil {
						t.Errorf("rank %d: %v", i, err)
					}
				}
			})
		})
	}
}

// Nor does it by listening where a peer was: whoever answers must be that worker.
func TestImpostor(t *testing.T) {
	headers := strangers()
	headers["another worker"] = worker(2)
	for name, from := range headers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTown(t, 2)
				defer w.close()
				impostor := memnet.Listen(1 << 10)
				defer impostor.Close()
				w.listeners = append(w.listeners, impostor)
				go func() {
					c, err := impostor.Accept()
					if err != nil {
						return
					}
					defer c.Close()
					readHello(c, admitAll)
					c.Write(answer{verdict: welcome, formation: 1, from: from}.append(nil))
					io.Copy(io.Discard, c)
				}()
				wrong := world(1, 1, 0, 1)
				wrong.Peers[0].Address = "2"
				start := time.Now()
				m, err := w.nodes[1].Connect(t.Context(), wrong)
				if m != nil {
					m.Close()
				}
				if b, ok := errors.AsType[*BrokenError](err); !ok || b.Rank != 0 || time.Since(start) > 0 ||
					!errors.Is(err, identity.ErrForeign) && !errors.Is(err, identity.ErrForbidden) {
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		})
	}
}

// Connections that say nothing are bounded; the oldest make room for those that come.
func TestSilentConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t, 2)
		defer w.close()
		meshes := w.connect(1, 0, 1)
		defer closeAll(meshes)
		var silent []net.Conn
		for range 3 * strangersMost {
			c, err := w.dial(t.Context(), "0")
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			silent = append(silent, c)
		}
		synctest.Wait()
		open := 0
		for i, c := range silent {
			c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if _, err := c.Read(make([]byte, 1)); isTimeout(err) {
				open++
			} else if i >= 2*strangersMost {
				t.Error("a newer one was closed: ", i)
			}
		}
		if most := strangersMost + 2; open == 0 || open > most {
			t.Errorf("%d that say nothing are open, at most %d", open, most)
		}
		if _, a := w.greeted(0, greets(1, 1, 0, 1, 0, 2)); a == nil || a.verdict != outdated {
			t.Errorf("who speaks is answered %v", a)
		}
	})
}

// What is logged of a hello tells no secret.
func TestHelloHidesTheSecret(t *testing.T) {
	if text := fmt.Sprintf("%v %+v", greets(1, 1, 0, 1, 0, 2), greets(1, 1, 0, 1, 0, 2)); strings.Contains(text, testSecret) {
		t.Error(text)
	}
}
