//go:build e2e

package e2e

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// cloud is the metadata service of a cloud for the pods of a namespace: it announces to some of
// them that their machine is taken away.
type cloud struct {
	url string
	mu  sync.Mutex
	// addresses to which it announces that
	taken []string
}

// newCloud serves as EC2's metadata service, version 2, does.
func (ns *namespace) newCloud() *cloud {
	ns.t.Helper()
	// of this machine, too
	address := ns.kubectl("get", "node", ns.nodes[0], "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		ns.t.Fatal(err)
	}
	c := new(cloud)
	server := httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	server.Listener.Close()
	server.Listener = listener
	server.Start()
	ns.t.Cleanup(server.Close)
	c.url = server.URL
	return c
}

func (c *cloud) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		w.Header().Set("X-aws-ec2-metadata-token-ttl-seconds", "21600")
		io.WriteString(w, "token")
		return
	}
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	c.mu.Lock()
	defer c.mu.Unlock()
	if !slices.Contains(c.taken, host) {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	io.WriteString(w, `{"action": "terminate", "time": "2026-11-28T08:22:00Z"}`)
}

// takes announces to some addresses that their machine is taken away.
func (c *cloud) takes(addresses []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = addresses
}

// A cloud announces to one pod that it takes its node away, which the cluster does not know. Both
// workers of the node leave as preempted. Their replacements wait for another node, although this
// one has room, and run there as soon as there is one.
func TestNoticeOfTheCloud(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespaceApart(t)
	c := ns.newCloud()
	j := ns.spread("warned", "40", "--notice_metadata=aws", "--envs=AWS_EC2_METADATA_SERVICE_ENDPOINT="+c.url)
	kept := j.uids("master", "ps-0", "ps-1")
	doomed := j.runningOn(ns.nodes[1])
	address := ns.kubectl("get", "pod", "elasticdl-warned-"+doomed[0], "-o", "jsonpath={.status.podIP}")
	began := time.Now()
	c.takes([]string{address})
	j.awaits("the workers of the node to be replaced, which wait for another", patience, func() bool {
		return len(j.workers(pending)) == 2 && len(j.on(ns.nodes[1], (*object).running)) == 0
	})
	took(t, "the cloud's notice to both workers of the node replaced", began)
	j.goesOn(trainingDigits / 10)
	if n := len(j.runningOn(ns.nodes[1])); n != 0 {
		t.Errorf("%d workers run on the node that will be taken away", n)
	}
	// a pod counts as replaced when it has ended, which its node reports later
	j.awaits("both to be replaced", patience, func() bool {
		s := j.status()
		return s != nil && s.Relaunched >= 2
	})
	setSlots(t, ns.nodes[0], 4)
	j.awaits("4 workers", patience, func() bool { return len(j.on(ns.nodes[0], (*object).running)) == 4 })
	if now := j.uids("master", "ps-0", "ps-1"); !slices.Equal(now, kept) {
		t.Error("the master or a server was replaced")
	}
	if s := j.tells(); s.Relaunched != 2 {
		t.Errorf("%d pods replaced, want 2", s.Relaunched)
	}
	j.hurries()
	j.ends(epochs)
	const why = "will be taken away: AWS announces: terminate at 2026-11-28T08:22:00Z"
	if out := ns.elasticdl("events", "warned"); strings.Count(out, "preempted: node "+ns.nodes[1]+" "+why) != 2 {
		t.Errorf("elasticdl events does not say twice why:\n%s", out)
	}
}
