// Package prove gives tests the credentials of any process of any job.
package prove

import (
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// era is a job and the year of its clock: the clock of a synctest bubble has another year than the
// machine's.
type era struct {
	job  string
	year int
}

// holder identifies the owner of a credential.
type holder struct {
	*credential.Authority
	identity.Name
}

var (
	mu          sync.Mutex
	authorities = make(map[era]*credential.Authority)
	credentials = make(map[holder]*credential.Credential)
)

// Authority returns the authority of a job, the same each time.
func Authority(job string) *credential.Authority {
	mu.Lock()
	defer mu.Unlock()
	e := era{job, time.Now().Year()}
	if authorities[e] == nil {
		a, err := credential.NewAuthority(job, time.Now())
		if err != nil {
			panic(err)
		}
		authorities[e] = a
	}
	return authorities[e]
}

// Of returns the credential for a header, the same each time.
func Of(h identity.Header) *credential.Credential {
	a := Authority(h.Job)
	mu.Lock()
	defer mu.Unlock()
	k := holder{a, h.Name()}
	if credentials[k] == nil {
		credentials[k] = By(a, h.Name())
	}
	return credentials[k]
}

// Share makes the authority of another process of the test, encoded by
// [credential.Authority.Encode], the authority of a job in this process.
func Share(job string, text []byte) error {
	a, err := credential.ParseAuthority(text)
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	authorities[era{job, time.Now().Year()}] = a
	return nil
}

// By returns the credential for a name, signed by the authority.
func By(a *credential.Authority, n identity.Name) *credential.Credential {
	card, err := a.Issue(n, time.Now(), credential.Lasting)
	if err != nil {
		panic(err)
	}
	c, err := credential.Of(card)
	if err != nil {
		panic(err)
	}
	return c
}
