package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/tools/kubernetes/host"
	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// Down ends the cluster in dir, or removes its remains, and undoes its changes of the machine. Its
// logs are kept.
func Down(dir string, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	r, err := loadRecord()
	if err != nil {
		return err
	}
	ours := r != nil && r.Dir == dir
	s, err := loadState(dir)
	if err != nil {
		return err
	}
	if s == nil && !ours {
		fmt.Fprintf(out, "no cluster is in %s\n", dir)
		return nil
	}
	// the directory may have been deleted while the cluster ran
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	held, err := lock(dir)
	if err != nil {
		return err
	}
	defer held.Close()
	p := &progress{out: out, start: time.Now()}
	var mark string
	if s != nil {
		mark = s.Mark
	} else {
		mark = r.Mark
	}
	if err := clean(dir, mark, ours); err != nil {
		return err
	}
	p.done("the cluster in %s is down", dir)
	return nil
}

// clean kills all processes of the cluster with that mark in dir, and removes what they created;
// with machine, it also undoes the changes of a cluster with real nodes. Processes are killed
// without warning, because none has anything to save.
func clean(dir, mark string, machine bool) error {
	if machine && os.Geteuid() != 0 {
		return fmt.Errorf("clean up the cluster in %s: it has real nodes, which needs root", dir)
	}
	if err := proc.Kill(func() []int { return proc.Marked(markEntry(mark)) }, 10*time.Second); err != nil {
		return err
	}
	var errs []error
	if machine {
		errs = append(errs, killPods(mark), host.Unmount(dir), cleanFiles(dir), cleanMachine())
	}
	entries, err := os.ReadDir(dir)
	// it may have been deleted, and the machine must be cleaned up all the same
	if !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	for _, entry := range entries {
		if entry.Name() != "logs" && entry.Name() != "state.json" {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, entry.Name())))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("clean up the cluster in %s: %w", dir, err)
	}
	// Last, because they are needed to try again.
	if machine {
		errs = append(errs, os.Remove(recordPath))
	}
	if err := os.Remove(filepath.Join(dir, "state.json")); !errors.Is(err, os.ErrNotExist) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// killPods kills the processes of all pods of the cluster with that mark.
func killPods(mark string) error {
	groups, err := host.FindCgroups()
	if err != nil {
		return err
	}
	var errs []error
	for i := range maxNodes {
		list := func() []int { return groups.Processes(cgroup(mark, i)) }
		if err := proc.Kill(list, 10*time.Second); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, groups.Remove(cgroup(mark, i), 10*time.Second))
	}
	return errors.Join(errs...)
}

// cleanMachine undoes changes outside of the cluster's directory.
func cleanMachine() error {
	var errs []error
	for i := range maxNodes {
		errs = append(errs, host.RemoveLink(bridge(i)))
	}
	errs = append(errs, host.PurgeFirewall(), host.RemoveAddress(nodeAddress))
	r, err := loadRecord()
	if r != nil {
		err = r.Settings.Write()
	}
	return errors.Join(append(errs, err)...)
}

// cleanFiles removes files that containerd, kubelets and network plugins leave in fixed
// directories.
func cleanFiles(dir string) error {
	var errs []error
	remove := func(files []string) {
		for _, file := range files {
			errs = append(errs, os.RemoveAll(file))
		}
	}
	addresses, _ := filepath.Glob(
		filepath.Join(dir, "node-*/containerd/state/io.containerd.runtime.v2.task/*/*/address"))
	for _, file := range addresses { // addresses of the shims' sockets
		address, err := os.ReadFile(file)
		if socket, ok := strings.CutPrefix(string(address), "unix:///run/containerd/s/"); err == nil && ok {
			remove([]string{filepath.Join("/run/containerd/s", filepath.Base(socket))})
		}
	}
	// each names the pod's network namespace, which is in dir
	results, _ := filepath.Glob("/var/lib/cni/results/*")
	for _, file := range results {
		if content, err := os.ReadFile(file); err == nil && bytes.Contains(content, []byte(dir+"/")) {
			remove([]string{file})
		}
	}
	links, _ := filepath.Glob("/var/log/containers/*.log")
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, dir+"/") {
			remove([]string{link})
		}
	}
	remove([]string{"/var/lib/kubelet/device-plugins/kubelet.sock",
		"/var/lib/kubelet/device-plugins/kubelet_internal_checkpoint"})
	for _, folder := range []string{"/var/lib/kubelet/device-plugins", "/var/lib/kubelet",
		"/run/containerd/s", "/run/containerd", "/var/lib/cni/results", "/var/lib/cni", "/var/log/containers"} {
		os.Remove(folder) // removed only if it is empty
	}
	return errors.Join(errs...)
}
