package role

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// secretSize is how many random bytes a job's secret has.
const secretSize = 32

// NewSecret returns the secret of a new job, as hexadecimal digits. The processes of a job know each other by it.
func NewSecret() string {
	secret := make([]byte, secretSize)
	rand.Read(secret) // which never fails
	return hex.EncodeToString(secret)
}

// IsSecret reports whether text is a secret as [NewSecret] returns it.
func IsSecret(text string) bool {
	secret, err := hex.DecodeString(text)
	return err == nil && len(secret) == secretSize
}

// Identify takes the identity of the job from the environment, which the master sets for each pod that it makes. A secret
// is never in the arguments of a command, which every user of a machine can list.
func (r *Role) Identify(getenv func(name string) string) {
	r.Job, r.Secret = getenv(job.EnvUID), getenv(job.EnvSecret)
}

// check returns an error if the role lacks what others know it by. The error does not contain the secret.
func (r Role) check() error {
	switch {
	case r.Job == "":
		return fmt.Errorf("%s is not set: expected the UID of the job; servers and workers are started by the master of their job", job.EnvUID)
	case !IsSecret(r.Secret):
		return fmt.Errorf("%s is not set as expected: expected %d hexadecimal digits; servers and workers are started by the master of their job", job.EnvSecret, 2*secretSize)
	case r.Launch < 1:
		return fmt.Errorf("--launch=%d: expected 1 or more", r.Launch)
	}
	return nil
}
