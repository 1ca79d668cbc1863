package dataset

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// A downloader gets files from the first mirror that has them right.
type downloader struct {
	client   *http.Client
	mirrors  []string
	sums     map[string]string // nil: any will do
	kind     string            // of the checksums
	progress func(Progress)
}

const (
	maxDownload = 1 << 28 // bytes of a file
	attempts    = 3       // without a new byte
	pause       = time.Second
	stalled     = 30 * time.Second
)

// newClient leaves bodies their time: read sees to it that they move.
func newClient() *http.Client {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.ResponseHeaderTimeout = stalled
	return &http.Client{Transport: t}
}

// fetch downloads a file to a path and checks it. name is what the checksums know it by.
func (d *downloader) fetch(ctx context.Context, file, name, path string) (input, error) {
	var problems []string
	for _, mirror := range d.mirrors {
		url := strings.TrimSuffix(mirror, "/") + "/" + file
		in, err := d.fetchFrom(ctx, url, name, path)
		if err == nil {
			return in, nil
		}
		if ctx.Err() != nil {
			return in, context.Cause(ctx)
		}
		problems = append(problems, err.Error())
	}
	return input{}, errors.New(strings.Join(problems, "; "))
}

func (d *downloader) fetchFrom(ctx context.Context, url, name, path string) (in input, err error) {
	file, err := os.Create(path)
	if err != nil {
		return in, err
	}
	body := &partial{file: file}
	err = d.readAll(ctx, url, body, Progress{Step: "download " + url[strings.LastIndexByte(url, '/')+1:], Bytes: true})
	if err = errors.Join(err, file.Close()); err != nil {
		return in, err
	}
	in = input{name: url, path: path}
	if in.sum, in.size, err = sumOf(path, d.kind); err != nil {
		return in, fmt.Errorf("%s: %w", url, err)
	}
	if want := d.sums[name]; d.sums != nil && in.sum != want {
		kind := "sha256 "
		if d.kind != "" {
			kind = ""
		}
		return in, fmt.Errorf("%s: %s%s, want %s", url, kind, in.sum, want)
	}
	return in, nil
}

// readAll goes on where a connection broke, as long as there is progress.
func (d *downloader) readAll(ctx context.Context, url string, body *partial, step Progress) error {
	for left := attempts; ; {
		before := body.size
		again, err := d.read(ctx, url, body, step)
		if err == nil {
			return nil
		}
		if left--; body.size > before {
			left = attempts
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

// partial is the beginning of a file.
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

// read appends to body what is missing of it; again says whether another attempt makes sense.
func (d *downloader) read(ctx context.Context, url string, body *partial, step Progress) (again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the file's own gzip is to stay
	if body.size > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", body.size))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		e, ok := errors.AsType[*net.OpError](err) // no connection: another mirror may do better
		return !ok || e.Op != "dial", err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", body.size)):
	case resp.StatusCode == http.StatusOK:
		if err := body.reset(); err != nil { // from the beginning
			return false, err
		}
	default:
		if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			if err := body.reset(); err != nil {
				return false, err
			}
			return true, fmt.Errorf("get %s: %s", url, resp.Status)
		}
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	if resp.ContentLength >= 0 {
		step.Total = body.size + resp.ContentLength
	}
	if step.Total > maxDownload {
		return false, fmt.Errorf("get %s: %d bytes, want at most %d", url, step.Total, maxDownload)
	}
	watch := time.AfterFunc(stalled, func() { cancel(fmt.Errorf("nothing came for %v", stalled)) })
	defer watch.Stop()
	buf := make([]byte, 1<<15)
	for {
		n, err := resp.Body.Read(buf)
		watch.Reset(stalled)
		if _, err := body.Write(buf[:n]); err != nil {
			return false, err
		}
		step.Done = body.size
		d.progress(step)
		if step.Done > maxDownload {
			return false, fmt.Errorf("get %s: more than %d bytes", url, maxDownload)
		}
		if err == io.EOF {
			return false, nil
		} else if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return true, fmt.Errorf("get %s: %w", url, err)
		}
	}
}
