package incluster

import (
	"context"
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// authority returns the authority that signs the certificates of the job. The user's side creates
// the Secret empty, and one master fills it: the first, by the resource version; later ones use
// what it holds.
func (m *kubeMaster) authority(ctx context.Context) (*credential.Authority, error) {
	secrets, name := m.Client.CoreV1().Secrets(m.Namespace), manifest.IdentityName(m.Job)
	var text []byte
	err := m.eventually(ctx, func() error {
		// again after a conflict
		return insist(ctx, m.log, "read the job's authority", func(ctx context.Context) error {
			o, err := secrets.Get(ctx, name, meta.GetOptions{})
			if err != nil {
				return err
			}
			if o, err = fill(ctx, o, m.env[job.EnvUID], secrets.Update); err == nil {
				text = o.Data[manifest.KeyAuthority]
			}
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read the job's authority: %w", err)
	}
	a, err := credential.ParseAuthority(text)
	if err != nil {
		return nil, fmt.Errorf("%s of Secret %s is not as a master writes it: stop the job, and "+
			"submit it again: %w", manifest.KeyAuthority, name, err)
	}
	return a, nil
}

// fill returns the Secret with an authority of the job in it, which it writes if there is none.
func fill(ctx context.Context, o *core.Secret, uid string, update func(context.Context, *core.Secret,
	meta.UpdateOptions) (*core.Secret, error)) (*core.Secret, error) {
	if len(o.Data[manifest.KeyAuthority]) > 0 {
		return o, nil
	}
	a, err := credential.NewAuthority(uid, time.Now())
	if err != nil {
		return nil, err
	}
	text, err := a.Encode()
	if err != nil {
		return nil, err
	}
	o = o.DeepCopy()
	if o.Data == nil {
		o.Data = make(map[string][]byte)
	}
	o.Data[manifest.KeyAuthority] = text
	return update(ctx, o, meta.UpdateOptions{})
}

// self returns who the master is, with a certificate that it signs for itself.
func self(a *credential.Authority, h identity.Header) (*rpc.Self, error) {
	card, err := a.Issue(h.Name(), time.Now(), credential.Lasting)
	if err != nil {
		return nil, err
	}
	c, err := credential.Of(card)
	if err != nil {
		return nil, err
	}
	return rpc.NewSelf(h, c), nil
}
