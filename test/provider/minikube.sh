#!/bin/sh
# Plays minikube, and kubectl as far as it tells a context. A file in $FAKE_MINIKUBE is a profile, and has how it was started.
set -eu
fail() { echo "X $1" >&2; exit "$2"; }
tool=$(basename "$0") profile= all="$*" words=
while [ $# -gt 0 ]; do
  case $1 in
  -p) shift; profile=$1 ;;
  -p=* | --profile=*) profile=${1#*=} ;;
  --context=*) profile=${1#*=} ;;
  -*) ;;
  *) words="$words $1" ;;
  esac
  shift
done
[ -n "$profile" ] || fail "$tool $all: of which profile?" 64
file=$FAKE_MINIKUBE/$profile
case "$tool$words" in
"minikube status") [ -f "$file" ] || fail "Profile \"$profile\" not found." 85 ;;
"minikube start")
  for want in --keep-context --interactive=false; do
    case " $all " in *" $want "*) ;; *) fail "start without $want" 64 ;; esac
  done
  case $all in *FAIL*) fail "GUEST_START" 80 ;; esac
  [ -f "$file" ] || echo "$all" >"$file"
  echo "Done! kubectl is now configured" ;;
"minikube delete") rm -f "$file" ;;
"minikube image load "*) [ -f "$file" ] || fail "no such profile" 85; echo "$words" >>"$file" ;;
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
*) fail "$tool $all: not played" 64 ;;
esac
