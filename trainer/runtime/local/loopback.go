package local

import (
	"errors"
	"fmt"
	"net"
	"time"
)

// loopbacks are the addresses of the loopback interface, in the order in which they are tried.
var loopbacks = []string{"127.0.0.1", "::1"}

// reachLimit is the time that a connection to this process itself may take: it is made by the
// kernel alone.
const reachLimit = 5 * time.Second

// listenLocally listens on the loopback interface, at an address at which connections arrive.
// Listening alone does not prove that: it succeeds on an interface that is down, and then nobody
// can connect.
func listenLocally() (net.Listener, error) {
	var problems []error
	for _, host := range loopbacks {
		l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if err == nil {
			if err = reachable(host); err == nil {
				return l, nil
			}
			l.Close()
		}
		problems = append(problems, err)
	}
	return nil, fmt.Errorf("the loopback interface does not work, by which the processes of a job "+
		"on this machine talk to each other; "+
		"bring it up: ip link set lo up: %w", errors.Join(problems...))
}

// reachable connects to a listener of its own at the host, so that no other is disturbed.
func reachable(host string) error {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	defer l.Close()
	conn, err := net.DialTimeout("tcp", l.Addr().String(), reachLimit)
	if err != nil {
		return err
	}
	return conn.Close()
}
