package credential

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

// WriteNow never waits, and what it and Write write is read in their order.
func TestWriteNow(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := authority(t, "uid")
	to, from := credential(t, a, server, time.Hour), credential(t, a, worker, time.Hour)
	var accepted *Conn
	got := make(chan error, 1)
	go func() {
		raw, err := l.Accept()
		if err == nil {
			accepted, err = to.Server(t.Context(), raw, false, Mesh)
		}
		got <- err
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	client, err := from.Client(t.Context(), raw, Mesh, identity.Is(server.ID))
	if err := errors.Join(err, <-got); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	defer accepted.Close()
	message := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, Prompt) }
	written := 0
	for client.WriteNow(message(written)) {
		if written++; written > 1<<20 {
			t.Fatal("a gigabyte was written that nobody reads")
		}
	}
	if written == 0 {
		t.Fatal("nothing was written")
	}
	if client.WriteNow(make([]byte, Prompt+1)) {
		t.Errorf("more than %d bytes were written", Prompt)
	}
	last := make(chan error, 1)
	go func() {
		_, err := client.Write(message(written))
		last <- err
	}()
	b := make([]byte, Prompt)
	for i := range written + 1 {
		if _, err := io.ReadFull(accepted, b); err != nil || !bytes.Equal(b, message(i)) {
			t.Fatalf("message %d of %d: %v, %v", i, written, b[:8], err)
		}
	}
	if err := <-last; err != nil {
		t.Fatal(err)
	}
	accepted.Close()
	for client.WriteNow([]byte{1}) { // until the system has heard of it
	}
	if _, err := client.Write([]byte{1}); err == nil {
		t.Error("written to nobody")
	}
}

// A connection that is no socket, or carries something else than a ring's data, does not know
// whether it must wait.
func TestWriteNowNeedsASocket(t *testing.T) {
	for _, p := range []Protocol{GRPC, Push, Mesh} {
		if client, _, _ := watch(t, p); client.WriteNow([]byte{1}) {
			t.Errorf("%s: written", p)
		}
	}
}
