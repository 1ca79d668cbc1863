#!/bin/sh
# Simulates the programs that commands of a stack run, under their names. A file in $FAKE_MINIKUBE
# is a profile of minikube. It has the command that started the profile, and the loaded images.
set -eu
fail() { echo "X $1" >&2; exit "$2"; }
tool=$(basename "$0") all="$*" profile= words= last=
while [ $# -gt 0 ]; do
  case $1 in
  -p) shift; profile=$1 ;;
  -p=* | --profile=* | --context=*) profile=${1#*=} ;;
  -*) ;;
  *) words="$words $1" last=$1 ;;
  esac
  shift
done
case $tool in minikube | kubectl) [ -n "$profile" ] || fail "$tool $all: of which profile?" 64 ;; esac
file=$FAKE_MINIKUBE/$profile
case "$tool$words" in
"minikube status") [ -f "$file" ] || fail "Profile \"$profile\" not found." 85 ;;
"minikube start")
  for want in --keep-context --interactive=false; do
    case " $all " in *" $want "*) ;; *) fail "start without $want" 64 ;; esac
  done
  [ -f "$file" ] || echo "$all by $$" >"$file"
  echo "Done! kubectl is now configured" ;;
"minikube delete") rm -f "$file" ;;
"minikube image load "*) [ -f "$file" ] || fail "no profile" 85; cat "$last" >>"$file" ;;
"minikube image ls") cat "$file" ;;
"kubectl config view")
  [ -f "$file" ] || fail "cannot locate context $profile" 1
  cat <<END
apiVersion: v1
kind: Config
current-context: $profile
clusters: [{name: $profile, cluster: {server: "https://minikube.$profile", certificate-authority-data: Q0E=}}]
contexts: [{name: $profile, context: {cluster: $profile, user: $profile}}]
users: [{name: $profile, user: {client-certificate-data: Q0VSVA==, client-key-data: UFJJVkFURS1LRVk=}}]
END
  ;;
"elasticdl zoo build "*)
  [ -d "$last" ] || fail "no source $last" 2
  image=$(expr "$all" : '.*--image=\([^ ]*\)')
  case $all in *--output=*) echo "$image" >"$(expr "$all" : '.*--output=\([^ ]*\)')" ;; esac
  # The digest is of how it is built and of the program without its comments.
  mkdir -p "$FAKE_MINIKUBE-images"
  { echo "$all" | sed 's/--[io][a-z]*=[^ ]*//g'; grep -Ev '^(//|$)' "$last/main.go"; } | cksum | cut -d' ' -f1 >"$FAKE_MINIKUBE-images/$(echo "$image" | tr / _)"
  echo "$image" ;;
"elasticdl zoo push registry.example/"*)
  case $all in *--username=*) fail "push $last: by Docker's credentials" 1 ;; esac
  echo "$last@sha256:$(printf '%064d' "$(cat "$FAKE_MINIKUBE-images/$(echo "$last" | tr / _)")")" ;;
"elasticdl zoo push "*)
  [ "$(cat)" = UFJJVkFURS1LRVk= ] || fail "push $last: unauthorized" 1
  echo "$last@sha256:$(printf '%064d' "$(cat "$FAKE_MINIKUBE-images/$(echo "$last" | tr / _)")")" ;;
"elasticdl dataset "*)
  case $all in
  *" --to="[gs][s3]://*" --"*) fail "$all: a bucket needs no cluster" 1 ;;
  *" --to="[gs][s3]://*) echo "$all" >&2; exit 0 ;;
  esac
  case $all in *" --context=kind-"*) echo "$all" >&2; exit 0 ;; esac # by the kubeconfig of the machine
  kubeconfig=$(expr "$all" : '.*--kubeconfig=\([^ ]*\)')
  case "$(ls -l "$kubeconfig")" in -rw-------*) ;; *) fail "others may read $kubeconfig" 1 ;; esac
  grep -q server "$kubeconfig" || fail "$kubeconfig is no kubeconfig" 1
  echo "$all" | sed "s, --kubeconfig=$kubeconfig,," >&2 ;;
"gcloud auth print-access-token" | "aws ecr get-login-password"*) echo UFJJVkFURS1LRVk= ;;
*) fail "$tool $all: not played" 64 ;;
esac
