package host

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
)

// AddAddress adds to the loopback device an address, which only processes of this machine can
// reach.
func AddAddress(address string) error {
	_, err := run("", "ip", "address", "replace", address+"/32", "dev", "lo")
	return err
}

// RemoveAddress removes the address, if it exists.
func RemoveAddress(address string) error {
	out, err := run("", "ip", "-o", "address", "show", "dev", "lo", "to", address+"/32")
	if err != nil || strings.TrimSpace(out) == "" {
		return err
	}
	_, err = run("", "ip", "address", "del", address+"/32", "dev", "lo")
	return err
}

// RemoveLink deletes a network device, if it exists.
func RemoveLink(name string) error {
	if _, err := net.InterfaceByName(name); err != nil {
		return nil
	}
	_, err := run("", "ip", "link", "del", name)
	return err
}

// PurgeFirewall removes Kubernetes' chains from the firewall, and the rules that refer to them.
func PurgeFirewall() error {
	for _, tool := range []string{"iptables", "ip6tables"} {
		save, err := run("", tool+"-save")
		if err != nil {
			return err
		}
		if input := purge(save); input != "" {
			if _, err := run(input, tool+"-restore", "--noflush"); err != nil {
				return err
			}
		}
	}
	return nil
}

// HasFirewall reports whether the firewall has chains of Kubernetes.
func HasFirewall() (bool, error) {
	save, err := run("", "iptables-save")
	return purge(save) != "", err
}

// purge returns, for the output of iptables-save, the input of iptables-restore that removes all
// KUBE- chains, or "" if there are none.
func purge(save string) string {
	var script, leads, flushes, deletions strings.Builder
	table := ""
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		switch fields := strings.Fields(line); {
		case strings.HasPrefix(line, "*"):
			table = line
			leads.Reset()
			flushes.Reset()
			deletions.Reset()
		case strings.HasPrefix(line, ":KUBE-"):
			chain := fields[0][1:]
			fmt.Fprintf(&flushes, "-F %s\n", chain)
			fmt.Fprintf(&deletions, "-X %s\n", chain)
		case strings.HasPrefix(line, "-A ") && !strings.HasPrefix(line, "-A KUBE-") &&
			strings.Contains(line, " -j KUBE-"):
			fmt.Fprintf(&leads, "-D %s\n", line[len("-A "):])
		case line == "COMMIT" && flushes.Len() > 0:
			fmt.Fprintf(&script, "%s\n%s%s%sCOMMIT\n", table, leads.String(), flushes.String(), deletions.String())
		}
	}
	return script.String()
}

// run executes a program of the machine and returns its output.
func run(stdin, name string, args ...string) (string, error) {
	var stderr strings.Builder
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("run %s: %w: %s", strings.Join(append([]string{name}, args...),
			" "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
