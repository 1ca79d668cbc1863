package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Channel is a connection to the master of a job, for calls that change nothing. The API server
// forwards it to the loopback interface of the master's pod, for users who may create
// pods/portforward. It ends with that pod.
type Channel struct {
	client *Client
	job    string
	master *core.Pod // at the start of the channel
	conn   *grpc.ClientConn
	stream *forwarded
}

// ErrNoChannel is wrapped by errors of a job whose master cannot be asked, but whose state in the
// cluster may be read.
var ErrNoChannel = errors.New("its master cannot be asked")

// viewLimit limits a call of a [Channel]: stacks take up to five seconds.
const viewLimit = 15 * time.Second

// Channel connects to the master of a job. It returns [ErrNotFound] if there is no such job, and
// [ErrNoChannel] if its master does not run, or does not listen. An error of a missing permission
// names it.
func (c *Client) Channel(ctx context.Context, name string) (*Channel, error) {
	object := manifest.MasterName(name)
	p, err := ask(ctx, c, "get pod "+object, func(ctx context.Context) (*core.Pod, error) {
		return absent(c.set.CoreV1().Pods(c.namespace).Get(ctx, object, meta.GetOptions{}))
	})
	if err != nil {
		return nil, err
	}
	if p == nil {
		j, err := c.job(ctx, name)
		if err == nil && j == nil {
			err = c.notFound(name)
		}
		if err != nil {
			return nil, err
		}
	}
	if p == nil || p.Status.Phase != core.PodRunning {
		return nil, fmt.Errorf("job %s: %w: it does not run", name, ErrNoChannel)
	}
	if p.Spec.HostNetwork {
		return nil, fmt.Errorf("job %s: %w: its pod has the network of its node (hostNetwork), where others could "+
			"ask it, too; remove hostNetwork from --cluster_spec_json", name, ErrNoChannel)
	}
	stream, err := ask(ctx, c, "forward a port of pod "+object, func(ctx context.Context) (*forwarded, error) {
		return c.forward(ctx, object, manifest.ViewPort)
	})
	if err != nil {
		return nil, err
	}
	conn, err := rpc.Through(stream)
	if err != nil {
		stream.Close()
		return nil, err
	}
	return &Channel{client: c, job: name, master: p, conn: conn, stream: stream}, nil
}

// Close ends the connection.
func (ch *Channel) Close() error { return errors.Join(ch.conn.Close(), ch.stream.Close()) }

// View returns the present state of the job, as its page shows it.
func (ch *Channel) View(ctx context.Context) (role.View, error) {
	reply, err := call(ctx, ch, "watch", func(ctx context.Context, m wire.JobClient) (*wire.WatchReply, error) {
		return m.Watch(ctx, new(wire.WatchRequest))
	})
	if err != nil {
		return role.View{}, err
	}
	v, err := role.ViewOf(reply)
	if err != nil {
		return v, err
	}
	v.Status.Namespace = ch.client.namespace
	if p := new(objects).pod(ch.master); p != nil {
		v.Status.Pods = append(v.Status.Pods, p)
	}
	return v, nil
}

// Stacks returns the Python stacks of all processes of a program.
func (ch *Channel) Stacks(ctx context.Context) (*wire.StacksReply, error) {
	return call(ctx, ch, "stacks of", func(ctx context.Context, m wire.JobClient) (*wire.StacksReply, error) {
		return m.Stacks(ctx, &wire.StacksRequest{})
	})
}

// call calls the master. doing is the beginning of its error.
func call[T any](ctx context.Context, ch *Channel, doing string,
	f func(context.Context, wire.JobClient) (T, error)) (T, error) {
	limited, cancel := context.WithTimeout(ctx, viewLimit)
	defer cancel()
	reply, err := f(limited, wire.NewJobClient(ch.conn))
	if err == nil {
		return reply, nil
	}
	refused := ch.stream.refusal()
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case refused != nil:
		err = fmt.Errorf("%w: nothing listens at port %d of its pod: is its image of another version of "+
			"elasticdl? %w", ErrNoChannel, manifest.ViewPort, refused)
	case status.Code(err) == codes.Unavailable || status.Code(err) == codes.Unimplemented:
		err = fmt.Errorf("%w: %s", ErrNoChannel, status.Convert(err).Message())
	default:
		err = errors.New(status.Convert(err).Message())
	}
	return reply, fmt.Errorf("%s job %s: %w", doing, ch.job, err)
}

// Stacks returns the Python stacks of all processes of a program.
func (c *Client) Stacks(ctx context.Context, name string) (*wire.StacksReply, error) {
	ch, err := c.Channel(ctx, name)
	if err != nil {
		return nil, err
	}
	defer ch.Close()
	return ch.Stacks(ctx)
}

// forwardRight is a part of the message that the permission to forward ports is missing.
const forwardRight = `"pods/portforward"`

// lacksForward reports whether an error says that the user may not forward ports.
func lacksForward(err error) bool {
	why, _ := observe.Denied(err)
	return why == observe.NoPermission && strings.Contains(err.Error(), forwardRight)
}
