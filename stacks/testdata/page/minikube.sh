#!/bin/sh
# Simulates minikube on the test's cluster, which is the only profile. Its nodes are those of
# $TEST_CLUSTER, and /data of the node is $TEST_DATA. The profile exists while ~/.kube/config has
# its context. A command or flag that is not in this file is refused.
set -eu
fail() { echo "X minikube $all: $1" >&2; exit "$2"; }
all="$*" profile=elasticdl-minikube
context() { kubectl config get-contexts "$profile" >/dev/null 2>&1; }
# containerd runs a command of ctr on every node.
containerd() { for node in "$TEST_CLUSTER"/node-*/containerd.sock; do ctr --address="$node" --namespace=k8s.io "$@"; done; }
images() { ctr --address="$TEST_CLUSTER/node-0/containerd.sock" --namespace=k8s.io images ls -q | grep '^docker.io/elasticdl/' || true; }

unset KUBECONFIG
case "$all" in
version) echo "minikube version: v1" ;;
"status -p $profile") context || fail "Profile \"$profile\" not found." 85 ;;
"start -p $profile --cpus=2 --memory=6144mb --disk-size=50g --kubernetes-version=v1.35.0 --keep-context --interactive=false --wait=all")
  context && fail "it already exists" 1
  mkdir -p ~/.kube
  kubectl --kubeconfig="$TEST_CLUSTER/admin.kubeconfig" config view --minify --flatten >~/.kube/config
  kubectl config rename-context "$(kubectl config current-context)" "$profile"
  kubectl config unset current-context ;; # --keep-context
"-p $profile image load "*)
  context || fail "no profile" 85
  containerd images import "${all##* }" ;;
"-p $profile image ls") images ;;
"delete -p $profile")
  # All that is in the profile is deleted with it.
  objects=$(kubectl --context="$profile" get namespaces,persistentvolumes,priorityclasses \
    -o 'jsonpath={range .items[?(@.metadata.annotations.elasticdl-stack)]}{.kind}/{.metadata.name} {end}')
  [ -z "$objects" ] || kubectl --context="$profile" delete --timeout=2m $objects
  for image in $(images); do containerd images rm --sync "$image"; done
  rm -rf "$TEST_DATA"/* ~/.kube ;;
*) fail "no command of the page or its stack: see stacks/testdata/page/minikube.sh" 64 ;;
esac
