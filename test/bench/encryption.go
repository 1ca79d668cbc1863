package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

func encryptionBenchmarks() []benchmark {
	return []benchmark{
		{name: "encryption/all-reduce", run: encryptedRing},
		{name: "encryption/step", run: encryptedSteps},
		{name: "encryption/leases", run: encryptedLeases},
		{name: "encryption/recovery", run: encryptedRecovery},
		{name: "encryption/start", run: encryptedStart},
		{name: "encryption/certificates", run: certificates},
	}
}

// off makes a job send gradients and values without TLS.
func off(j *job.Job) { j.DataEncryption = "off" }

// encryptedRing compares the all-reduce of two processes that do not detect that they share a
// machine with two ends of crypto/tls that send each other the same number of bytes at the same
// time.
func encryptedRing(ctx context.Context, b *bench) error {
	// The two ends have different addresses.
	ours, err := startRanksAt(ctx, 2, "tls", func(i int) ([]string, string) {
		return nil, fmt.Sprintf("127.0.0.%d", 2+i)
	})
	if err != nil {
		return err
	}
	defer ours.end()
	peer, err := newExchange()
	if err != nil {
		return err
	}
	defer peer.close()
	const floats = 6_250_000
	found, err := turns(b.n(7),
		func() (float64, error) {
			seconds, err := ours.ask(floats, 4, 3)
			return busBandwidth(2, floats, seconds), err
		},
		func() (float64, error) {
			ms, err := typical(7, func() error { return peer.both(4 * floats) })
			return 4 * floats / ms / 1e6, err
		})
	if err == nil {
		b.paired(Result{Name: "encryption/all-reduce of 25 MB, 2 processes, TCP", Unit: "GB/s",
			Peer:   "crypto/tls of " + runtime.Version() + ", both ways at the same time",
			Target: ">= 0.9"}, found[0], found[1])
	}
	return err
}

// exchange is one connection of crypto/tls whose two ends both send.
type exchange struct{ ends [2]*tls.Conn }

func newExchange() (*exchange, error) {
	config, err := anyTLS()
	if err != nil {
		return nil, err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer lis.Close()
	dialled, err := net.DialTimeout("tcp", lis.Addr().String(), 5*time.Second)
	if err != nil {
		return nil, err
	}
	accepted, err := lis.Accept() // the connection is already in the queue
	if err != nil {
		dialled.Close()
		return nil, err
	}
	return &exchange{[2]*tls.Conn{tls.Client(dialled, config), tls.Server(accepted, config)}}, nil
}

// both makes each end send and receive a number of bytes, in writes of 1 MiB.
func (e *exchange) both(bytes int) error {
	done := make(chan error, 4)
	for i := range e.ends {
		go func() {
			piece := make([]byte, 1<<20)
			for sent := 0; sent < bytes; sent += len(piece) {
				if _, err := e.ends[i].Write(piece[:min(len(piece), bytes-sent)]); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		go func() {
			_, err := io.CopyBuffer(onlyWriter{io.Discard}, io.LimitReader(e.ends[i], int64(bytes)),
				make([]byte, 1<<20))
			done <- err
		}()
	}
	var failed error
	for range cap(done) {
		if err := <-done; err != nil && failed == nil {
			failed = err
			// the other goroutines must not wait forever
			e.close()
		}
	}
	return failed
}

// onlyWriter hides the ReadFrom method of io.Discard, which reads in small pieces.
type onlyWriter struct{ io.Writer }

func (e *exchange) close() {
	for _, end := range e.ends {
		end.NetConn().Close()
	}
}

// anyTLS returns plain settings for connections with TLS 1.3.
func anyTLS() (*tls.Config, error) {
	card, err := prove.Authority(jobUID).Issue(identity.Name{Job: jobUID, ID: pod.ID{Role: pod.PS}},
		time.Now(), time.Hour)
	if err != nil {
		return nil, err
	}
	text, err := card.Encode()
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(text, text)
	if err != nil {
		return nil, err
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true,
		MinVersion: tls.VersionTLS13}, nil
}

// encryptedSteps measures the time of a minibatch of the main job with two workers and two servers.
func encryptedSteps(ctx context.Context, b *bench) error {
	step := func(change func(*job.Job)) side {
		return func() (float64, error) {
			rate, err := b.jobRate(ctx, 3, 2, 2, change)
			return 1e3 * batch / rate, err
		}
	}
	found, err := turns(b.n(5), step(nil), step(off))
	if err == nil {
		b.paired(Result{Name: "encryption/minibatch of the MNIST CNN, 2 workers, 2 servers", Unit: "ms",
			Peer: without, Target: "<= 1.1"}, found[0], found[1])
	}
	return err
}

// encryptedLeases measures how many tasks the master leases and takes back, over TLS, and over
// connections that leave TLS after both ends are authenticated.
func encryptedLeases(ctx context.Context, b *bench) error {
	found, err := turns(b.n(3),
		func() (float64, error) { return leaseRate(ctx, "tls") },
		func() (float64, error) { return leaseRate(ctx, "plain") })
	if err == nil {
		b.paired(Result{Name: "encryption/task leases", Unit: "leases/s", Peer: "the same master " +
			"without TLS", Target: ">= 0.9"}, found[0], found[1])
	}
	return err
}

// encryptedRecovery kills workers of rings with TLS and without, in turns. The time until the
// survivors' next step varies with the moment of the kill within a step, more than TLS can add, so
// the difference has the bar.
func encryptedRecovery(ctx context.Context, b *bench) error {
	var encrypted, plain interruptions
	for range b.n(4) {
		for _, of := range []struct {
			change func(*job.Job)
			found  *interruptions
		}{{nil, &encrypted}, {off, &plain}} {
			if err := b.killsOf(ctx, 5, of.change, of.found); err != nil {
				return err
			}
		}
	}
	r := Result{Name: "encryption/kill -9 to the survivors' next step", Unit: "s", Threads: 1, Peer: without}
	b.compared(r, encrypted.survivors, plain.survivors)
	b.later(r, 0.02, encrypted.survivors, plain.survivors)
	b.compared(Result{Name: "encryption/newcomer's first step after its process started", Unit: "s",
		Threads: 1, Peer: without, Target: "<= 1.1"}, encrypted.newcomers, plain.newcomers)
	return nil
}

// without is a job's flag for the peers of the same code.
const without = "--data_encryption=off"

// later adds a row that limits by how many seconds ours take longer than theirs.
func (b *bench) later(r Result, bar float64, ours, theirs []float64) {
	more := make([]float64, min(len(ours), len(theirs)))
	for i := range more {
		more[i] = ours[i] - theirs[i]
	}
	r.Name, r.Peer = r.Name+", how much later than with "+r.Peer, ""
	b.bar(r, bar, more...)
}

// encryptedStart measures the time from the start of a job until the last of four workers of a ring
// has completed a step.
func encryptedStart(ctx context.Context, b *bench) error {
	start := func(change func(*job.Job)) side {
		return func() (float64, error) {
			j, err := b.mnistRing(ctx, 4)
			if err != nil {
				return 0, err
			}
			if change != nil {
				change(j)
			}
			began := time.Now()
			r, err := b.startRing(ctx, j)
			if err != nil {
				return 0, err
			}
			defer r.stop(ctx)
			if err := r.whole(ctx); err != nil {
				return 0, err
			}
			var last time.Time
			for _, w := range r.workers {
				if first := w.steps[0].at; first.After(last) {
					last = first
				}
			}
			return last.Sub(began).Seconds(), nil
		}
	}
	found, err := turns(b.n(5), start(nil), start(off))
	if err != nil {
		return err
	}
	r := Result{Name: "encryption/start of a job of 4 workers to the last one's first step", Unit: "s",
		Peer: without}
	b.paired(r, found[0], found[1])
	b.later(r, 0.3, found[0], found[1])
	return nil
}

// handshakes is more than the number of handshakes of a job of four workers and two servers until
// all workers step: of each pod with the master, twice; of each worker with each server, for calls
// and for data; of each pair of workers.
const handshakes = 2*6 + 2*4*2 + 6

// certificates measures, in sequence, what only a job with TLS does at its start: create an
// authority, a certificate for the master and each of six pods, and do all handshakes.
func certificates(ctx context.Context, b *bench) error {
	found, err := turns(b.n(9), func() (float64, error) {
		start := time.Now()
		authority, err := credential.NewAuthority(jobUID, start)
		if err != nil {
			return 0, err
		}
		var proofs []*credential.Credential
		for i := range 7 {
			proofs = append(proofs, prove.By(authority,
				identity.Name{Job: jobUID, ID: pod.ID{Role: pod.Worker, Index: i}}))
		}
		for i := range handshakes {
			if err := shake(ctx, proofs[i%7], proofs[(i+1)%7]); err != nil {
				return 0, err
			}
		}
		return time.Since(start).Seconds(), nil
	})
	if err == nil {
		b.bar(Result{Name: fmt.Sprintf("encryption/authority, 7 certificates and %d handshakes, one "+
			"after the other", handshakes), Unit: "s"}, 0.3, found[0]...)
	}
	return err
}

// shake makes two processes authenticate each other.
func shake(ctx context.Context, a, b *credential.Credential) error {
	near, far := net.Pipe()
	ended := make(chan error, 1)
	go func() {
		conn, err := b.Server(ctx, far, false, credential.GRPC)
		if err == nil {
			defer conn.Close()
		}
		ended <- err
	}()
	conn, err := a.Client(ctx, near, credential.GRPC, func(identity.Name) error { return nil })
	if err == nil {
		err = <-ended
		conn.Close()
	}
	return err
}
