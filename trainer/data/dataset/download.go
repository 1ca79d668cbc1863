package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// A downloader gets files from the first mirror that has them right.
type downloader struct {
	client   *http.Client
	mirrors  []string
	sums     map[string]string // nil: any will do
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

// fetch downloads a file and checks it.
func (d *downloader) fetch(ctx context.Context, name string) (input, error) {
	var problems []string
	for _, mirror := range d.mirrors {
		url := strings.TrimSuffix(mirror, "/") + "/" + name + ".gz"
		in, err := d.fetchFrom(ctx, url, name)
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

func (d *downloader) fetchFrom(ctx context.Context, url, name string) (input, error) {
	var body bytes.Buffer
	step := Progress{Step: "download " + name + ".gz", Bytes: true}
	for left := attempts; ; {
		before := body.Len()
		again, err := d.read(ctx, url, &body, step)
		if err == nil {
			break
		}
		if left--; body.Len() > before {
			left = attempts
		}
		if !again || left <= 0 {
			return input{}, err
		}
		select {
		case <-ctx.Done():
			return input{}, context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	in := input{name: url, open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body.Bytes())), nil }}
	var err error
	if in.sum, in.size, err = sumOf(in.open); err != nil {
		return in, fmt.Errorf("%s: %w", url, err)
	}
	if want := d.sums[name]; d.sums != nil && in.sum != want {
		return in, fmt.Errorf("%s: sha256 %s, want %s", url, in.sum, want)
	}
	return in, nil
}

// read appends to body what is missing of it; again says whether another attempt makes sense.
func (d *downloader) read(ctx context.Context, url string, body *bytes.Buffer, step Progress) (again bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept-Encoding", "identity") // the file's own gzip is to stay
	if body.Len() > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", body.Len()))
	}
	resp, err := d.client.Do(req)
	if err != nil {
		e, ok := errors.AsType[*net.OpError](err) // no connection: another mirror may do better
		return !ok || e.Op != "dial", err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusPartialContent &&
		strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", body.Len())):
	case resp.StatusCode == http.StatusOK:
		body.Reset() // from the beginning
	default:
		if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
			body.Reset()
			return true, fmt.Errorf("get %s: %s", url, resp.Status)
		}
		return resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, fmt.Errorf("get %s: %s", url, resp.Status)
	}
	if resp.ContentLength >= 0 {
		step.Total = int64(body.Len()) + resp.ContentLength
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
		body.Write(buf[:n])
		step.Done = int64(body.Len())
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
