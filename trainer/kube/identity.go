package kube

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/role"
)

// secret returns the secret of the job. The user's side makes the Secret empty and one master fills it: of several the
// first, by the resource version, and whoever comes later takes what is there.
func (m *kubeMaster) secret(ctx context.Context) (secret string, err error) {
	secrets, name := m.Client.CoreV1().Secrets(m.Namespace), manifest.IdentityName(m.Job)
	err = m.eventually(ctx, func() error {
		return insist(ctx, m.log, "read the job's secret", func(ctx context.Context) error { // again after a conflict
			o, err := secrets.Get(ctx, name, meta.GetOptions{})
			if err != nil {
				return err
			}
			if o, err = fill(ctx, o, secrets.Update); err == nil {
				secret = string(o.Data[manifest.KeySecret])
			}
			return err
		})
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("read the job's secret: %w", err)
	case !role.IsSecret(secret):
		return "", fmt.Errorf("read the job's secret: %s of Secret %s is not as a master writes it: stop the job, and submit it again", manifest.KeySecret, name)
	}
	return secret, nil
}

// fill returns the Secret with a secret in it, which it writes if there is none.
func fill(ctx context.Context, o *core.Secret, update func(context.Context, *core.Secret, meta.UpdateOptions) (*core.Secret, error)) (*core.Secret, error) {
	if len(o.Data[manifest.KeySecret]) > 0 {
		return o, nil
	}
	o = o.DeepCopy()
	if o.Data == nil {
		o.Data = make(map[string][]byte)
	}
	o.Data[manifest.KeySecret] = []byte(role.NewSecret())
	return update(ctx, o, meta.UpdateOptions{})
}
