package local

import (
	"errors"
	"net"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// metricsAddress returns where a process serves its metrics: a port of the loopback interface at
// which its master listens; "": the job has none.
func metricsAddress(j *job.Job, master net.Addr, port int) string {
	if j.MetricsPort == 0 {
		return ""
	}
	host := "127.0.0.1"
	if at, ok := master.(*net.TCPAddr); ok && at.IP.IsLoopback() {
		host = at.IP.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// PortFree returns an error if a process of this machine listens at a port.
func PortFree(port int) error {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return errors.New("another process listens at this port; give another one")
	}
	return l.Close()
}
