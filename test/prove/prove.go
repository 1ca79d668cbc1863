// Package prove gives tests what proves who speaks: the credentials of any process of any job.
package prove

import (
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/credential"
	"github.com/elasticdl/elasticdl/trainer/identity"
)

// era is a job, and the year of its clock: that of a synctest bubble is another one than the machine's.
type era struct {
	job  string
	year int
}

var (
	mu          sync.Mutex
	authorities = make(map[era]*credential.Authority)
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

// Of returns what proves a header.
func Of(h identity.Header) *credential.Credential { return By(Authority(h.Job), h.Name()) }

// By returns what proves a name to those who trust the authority.
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
