package cli

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// A job is stopped when its output has no reader any more, and not when a connection or pipe to a
// process breaks because that process has ended.
func TestLosesReader(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Close()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	pipe, looked := make(chan os.Signal), make(chan bool)
	loses := make(chan bool, 1)
	go func() {
		loses <- losesReader(t.Context(), pipe, func() bool {
			is := unread(file, writer)
			looked <- is
			return is
		})
	}()
	pipe <- syscall.SIGPIPE
	if <-looked {
		t.Error("a pipe with a reader, and a file, count as unread")
	}
	reader.Close()
	pipe <- syscall.SIGPIPE // it waits for another
	if !<-looked || !<-loses {
		t.Error("a pipe without a reader counts as read")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if losesReader(ctx, nil, nil) {
		t.Error("the end of the context counts as a lost reader")
	}
}
