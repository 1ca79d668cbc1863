package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Node is a node of minikube whose container engine a shell uses.
type Node struct {
	// of minikube
	Profile string
	// name of the environment variable that names the profile
	By string
}

// ActiveNode returns the node whose container engine a shell uses after `eval $(minikube
// docker-env)` or podman-env, or nil. Docker builds images on the node in such a shell. getenv is
// [os.Getenv].
func ActiveNode(getenv func(string) string) *Node {
	for _, by := range []string{"MINIKUBE_ACTIVE_DOCKERD", "MINIKUBE_ACTIVE_PODMAN"} {
		if profile := getenv(by); profile != "" {
			return &Node{profile, by}
		}
	}
	return nil
}

// Load brings an image of one platform to the node, by the command minikube.
func (n *Node) Load(ctx context.Context, i *Image) error {
	dir, err := os.MkdirTemp("", "elasticdl-minikube-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	archive := filepath.Join(dir, "image.tar")
	if err := WriteArchive(i, archive); err != nil {
		return err
	}
	said, err := exec.CommandContext(ctx, "minikube", "-p", n.Profile, "image", "load", archive).CombinedOutput()
	if err != nil {
		err = verdict(ctx, string(said), err)
		return fmt.Errorf("load %s into minikube's profile %s, which %s names: %w", i.Name, n.Profile, n.By, err)
	}
	return nil
}
