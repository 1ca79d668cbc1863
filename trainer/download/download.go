// Package download downloads a file over HTTP, completely or with an error. After a connection
// broke or hung, it resumes where that stopped.
package download

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// Attempts is the number of requests in a row without a new byte after which a download is given
// up.
const Attempts = 3

// Stalled is the time that a server may send nothing before its connection counts as broken.
const Stalled = 30 * time.Second

// ErrRefused is wrapped by the error of a client's CheckRedirect, so that the request is not
// repeated.
var ErrRefused = errors.New("redirect refused")

const pause = time.Second // between attempts

// NewClient returns a client without a limit on the time of a whole download: File notices a body
// that stalls.
func NewClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = Stalled
	return &http.Client{Transport: t}
}

// Request describes a download.
type Request struct {
	Client *http.Client
	URL    string
	// what errors call the URL, which may contain a secret; "": URL itself
	Name string
	// largest size in bytes; more is an error
	Max int64
	// called with bytes as they arrive, nil: not called; total is 0 while it is not known
	Progress func(done, total int64)
}

// File downloads the URL to the file at path. After an error a part of the file may be left there.
func (r Request) File(ctx context.Context, path string) error {
	if r.Name == "" {
		r.Name = r.URL
	}
	if r.Progress == nil {
		r.Progress = func(int64, int64) {}
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = r.readAll(ctx, &partial{file: file})
	return errors.Join(err, file.Close())
}

// readAll repeats requests until body is complete, or Attempts in a row brought nothing.
func (r Request) readAll(ctx context.Context, body *partial) error {
	for left := Attempts; ; {
		before := body.size
		again, err := r.read(ctx, body)
		if err == nil {
			return nil
		}
		if left--; body.size > before {
			left = Attempts
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !again || left <= 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
}

// partial is a file that has the first size bytes of the download.
type partial struct {
	file *os.File
	size int64
}

func (p *partial) Write(b []byte) (int, error) {
	n, err := p.file.Write(b)
	p.size += int64(n)
	return n, err
}

func (p *partial) reset() error {
	p.size = 0
	_, err := p.file.Seek(0, io.SeekStart)
	return errors.Join(err, p.file.Truncate(0))
}

// read requests the rest of body and appends it. After an error, again reports whether another
// attempt may succeed.
func (r Request) read(ctx context.Context, body *partial) (again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, again, err := r.ask(ctx, body)
	if err != nil {
		return again, err
	}
	defer resp.Body.Close()
	total := int64(0)
	if resp.ContentLength >= 0 {
		total = body.size + resp.ContentLength
	}
	if total > r.Max {
		return false, fmt.Errorf("get %s: %d bytes, want at most %d", r.Name, total, r.Max)
	}
	watch := time.AfterFunc(Stalled, func() { cancel(fmt.Errorf("nothing came for %v", Stalled)) })
	defer watch.Stop()
	buf := make([]byte, 1<<15)
	for {
		n, err := resp.Body.Read(buf)
		watch.Reset(Stalled)
		if _, err := body.Write(buf[:n]); err != nil {
			return false, err
		}
		r.Progress(body.size, total)
		if body.size > r.Max {
			return false, fmt.Errorf("get %s: more than %d bytes", r.Name, r.Max)
		}
		if err == io.EOF {
			return false, nil
		} else if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return true, fmt.Errorf("get %s: %w", r.Name, err)
		}
	}
}

// ask requests the rest of body. It empties body if the server sends the file from its beginning.
func (r Request) ask(ctx context.Context, body *partial) (resp *http.Response, again bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL, nil)
	if err != nil {
		return nil, false, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the file's own gzip is to stay
	if body.size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", body.size))
	}
	resp, err = r.Client.Do(req)
	if err != nil {
		// no connection: another mirror may do better
		e, ok := errors.AsType[*net.OpError](err)
		return nil, (!ok || e.Op != "dial") && !errors.Is(err, ErrRefused), r.hide(err)
	}
	code := resp.StatusCode
	switch {
	case code == http.StatusPartialContent && strings.HasPrefix(resp.Header.Get("Content-Range"),
		fmt.Sprintf("bytes %d-", body.size)):
		return resp, false, nil
	case code == http.StatusOK:
		if err := body.reset(); err != nil { // from the beginning
			resp.Body.Close()
			return nil, false, err
		}
		return resp, false, nil
	}
	resp.Body.Close()
	err = &StatusError{Name: r.Name, Code: code, Status: resp.Status}
	if code == http.StatusRequestedRangeNotSatisfiable {
		return nil, true, errors.Join(err, body.reset())
	}
	return nil, code >= 500 || code == http.StatusTooManyRequests, err
}

// hide replaces the URL in an error, which may contain a secret, by the request's name.
func (r Request) hide(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok && r.Name != r.URL {
		return fmt.Errorf("get %s: %w", r.Name, e.Err)
	}
	return err
}

// StatusError is returned for an HTTP answer that is not the file.
type StatusError struct {
	Name   string
	Code   int
	Status string
}

func (e *StatusError) Error() string { return fmt.Sprintf("get %s: %s", e.Name, e.Status) }
