package mesh

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/memnet"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// someone has the certificate of a stranger and the identity that it claims. Either may be wrong.
type someone struct {
	proves *credential.Credential
	says   identity.Header
}

// strangers returns callers that claim to be worker 1 or another, and lack the certificate of
// worker 1.
func strangers() map[string]someone {
	nobody, err := credential.New(prove.Authority(testJob).Root())
	if err != nil {
		panic(err)
	}
	foreign, err := credential.NewAuthority(testJob, time.Now())
	if err != nil {
		panic(err)
	}
	all := map[string]someone{
		"no certificate":        {nobody, worker(1)},
		"one of another job":    {prove.By(foreign, worker(1).Name()), worker(1)},
		"one of another worker": {prove.Of(worker(2)), worker(1)},
		"one of another incarnation": {prove.By(prove.Authority(testJob),
			identity.Name{Job: testJob, ID: worker(1).ID(), Incarnation: 9}), worker(1)},
		"another job in the same name": {prove.By(prove.Authority(testJob),
			identity.Name{Job: "uid-2", ID: worker(1).ID(), Incarnation: 1}), worker(1)},
	}
	for name, change := range map[string]func(*identity.Header){
		"another job":      func(h *identity.Header) { h.Job = "uid-2" },
		"a server":         func(h *identity.Header) { h.Role = pod.PS },
		"a user":           func(h *identity.Header) { h.Role = identity.User },
		"another protocol": func(h *identity.Header) { h.Protocol++ },
	} {
		h := worker(1)
		change(&h)
		all[name] = someone{prove.By(prove.Authority(testJob), h.Name()), h}
	}
	return all
}

// A stranger cannot take the place of a member, whatever it knows of the world, and gets no
// information.
func TestStrangerReplacesNobody(t *testing.T) {
	for name := range strangers() {
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
				raw, err := w.dial(t.Context(), "0")
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				from := strangers()[name]
				h := greets(5, 1, 0, 1, 0, 3)
				h.from = from.says
				if conn, err := from.proves.Client(t.Context(), raw, credential.Mesh,
					identity.Is(worker(0).ID())); err == nil {
					// if its certificate is refused, reading returns the error
					conn.Write(h.append(nil))
					if a, err := readAnswer(conn); err == nil &&
						(a.verdict != foreign || a.from != (identity.Header{}) || a.text == "") {
						t.Errorf("it is answered %+v", a)
					}
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

// A stranger that listens at the address of a peer is refused: Connect checks the identity of the
// worker that answers.
func TestImpostor(t *testing.T) {
	names := slices.Collect(maps.Keys(strangers()))
	for _, name := range append(names, "another worker") {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, ok := strangers()[name]
				if !ok {
					from = someone{prove.Of(worker(2)), worker(2)}
				}
				w := newTown(t, 2)
				defer w.close()
				impostor := memnet.Listen(1 << 10)
				defer impostor.Close()
				w.listeners = append(w.listeners, impostor)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				go func() {
					for {
						raw, err := impostor.Accept()
						if err != nil {
							return
						}
						if c, err := from.proves.Server(ctx, raw, true, credential.Mesh); err == nil {
							readHello(c, admitAll)
							c.Write(answer{verdict: welcome, generation: 1, from: from.says}.append(nil))
							io.Copy(io.Discard, c)
							c.Close()
						}
					}
				}()
				wrong := world(1, 1, 0, 1)
				wrong.Peers[0].Address = "2"
				m, err := w.nodes[1].Connect(ctx, wrong)
				if m != nil {
					m.Close()
				}
				if b, ok := errors.AsType[*BrokenError](err); !ok || b.Rank != 0 {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

// The number of silent connections is bounded: the oldest are closed when new ones come.
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
			t.Errorf("a peer that says hello is answered %v", a)
		}
	})
}
