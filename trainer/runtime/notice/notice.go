// Package notice asks the metadata service of a cloud whether this machine will be taken away.
//
//	ask, err := notice.Of(job.NoticeAWS)
//	why, err := notice.Await(ctx, ask, log) // "AWS announces: terminate at 2026-11-28T12:00:00Z"
//
// A pod reaches the service only where its cluster allows that. Many do not: the service also gives
// the credentials of the node.
package notice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"cloud.google.com/go/compute/metadata"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	// every is the time between two questions: GCE gives 30 s of notice, AWS two minutes.
	every = 2 * time.Second
	// rarely is the time between two questions to a service that has not answered patience times.
	rarely   = 30 * time.Second
	patience = 3
	// limit is the time that one answer may take.
	limit = 5 * time.Second
	// longest is the size of the longest answer that is read, in bytes.
	longest = 4096
)

// Ask asks a cloud once. It returns "" if it announces nothing.
type Ask func(context.Context) (why string, err error)

// Of returns how a cloud is asked, by the values of Job.NoticeMetadata.
func Of(cloud string) (Ask, error) {
	// It uses no proxy: that would answer for another machine, or not at all.
	direct := &http.Client{Timeout: limit, Transport: new(http.Transport)}
	switch cloud {
	case job.NoticeAWS:
		client := imds.New(imds.Options{EnableFallback: aws.FalseTernary, HTTPClient: direct})
		return func(ctx context.Context) (string, error) { return askAWS(ctx, client) }, nil
	case job.NoticeGCE:
		client := metadata.NewClient(direct)
		return func(ctx context.Context) (string, error) { return askGCE(ctx, client) }, nil
	}
	return nil, fmt.Errorf("cloud %q: expected %s or %s", cloud, job.NoticeAWS, job.NoticeGCE)
}

// Await asks until a cloud announces that it takes this machine away, and returns what it
// announces, or until ctx ends, and returns its error. A service that does not answer is logged
// once, and asked rarely.
func Await(ctx context.Context, ask Ask, log *slog.Logger) (why string, err error) {
	missed := 0
	for {
		limited, cancel := context.WithTimeout(ctx, limit)
		why, err := ask(limited)
		cancel()
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if why != "" {
			return why, nil
		}
		wait := every
		if err == nil {
			missed = 0
		} else if missed++; missed >= patience {
			wait = rarely
		}
		if missed == patience {
			log.Warn("The metadata service does not say whether this node will be taken away "+
				"(--notice_metadata): the cluster may not let pods reach it", "error", err)
		}
		select {
		case <-ctx.Done():
			return "", context.Cause(ctx)
		case <-time.After(wait):
		}
	}
}

// askAWS asks the instance metadata service, version 2, of EC2 for a spot interruption:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
func askAWS(ctx context.Context, client *imds.Client) (string, error) {
	reply, err := client.GetMetadata(ctx, &imds.GetMetadataInput{Path: "spot/instance-action"})
	if s, ok := errors.AsType[status](err); ok && s.HTTPStatusCode() == http.StatusNotFound {
		return "", nil // there is none
	}
	if err != nil {
		return "", err
	}
	defer reply.Content.Close()
	text, err := io.ReadAll(io.LimitReader(reply.Content, longest))
	if err != nil {
		return "", err
	}
	return interruption(text)
}

// status is an error with the code of an answer.
type status interface {
	error
	HTTPStatusCode() int
}

// interruption reads the notice of a spot instance.
func interruption(text []byte) (string, error) {
	var notice struct {
		Action string
		Time   time.Time
	}
	if err := json.Unmarshal(text, &notice); err != nil {
		return "", fmt.Errorf("spot/instance-action is %.100q: %w", text, err)
	}
	switch notice.Action {
	case "terminate", "stop", "hibernate":
		return fmt.Sprintf("AWS announces: %s at %s", notice.Action, notice.Time.Format(time.RFC3339)), nil
	}
	return "", fmt.Errorf("spot/instance-action is %.100q: expected terminate, stop or hibernate", text)
}

// askGCE asks the metadata server of Compute Engine for a preemption:
// https://cloud.google.com/compute/docs/instances/create-use-spot
func askGCE(ctx context.Context, client *metadata.Client) (string, error) {
	text, err := client.GetWithContext(ctx, "instance/preempted")
	if err != nil {
		return "", err
	}
	switch strings.TrimSpace(text) {
	case "TRUE":
		return "GCE announces: preempted", nil
	case "FALSE":
		return "", nil
	}
	return "", fmt.Errorf("instance/preempted is %.100q: expected TRUE or FALSE", text)
}
