#!/bin/sh
# Answers as the commands that the pages tell people to run, under their names: what a page says is run by a shell, and
# these are what it finds. A command or flag that is not here is refused.
set -eu
tool=$(basename "$0") all="$*"
fail() { echo "$tool $all: $1" >&2; exit "${2:-1}"; }

# cluster refuses a command without the stack's kubeconfig, or in another namespace.
cluster() {
  [ -f "${KUBECONFIG:-}" ] || fail "KUBECONFIG=${KUBECONFIG:-} is no file"
  grep -q 'server: https://' "$KUBECONFIG" || fail "$KUBECONFIG names no server"
  case " $all " in
  *" --namespace=elasticdl "* | *" -n elasticdl "*) ;;
  *" --namespace="* | *" -n "*) fail "expected the namespace elasticdl" ;;
  *) grep -q 'namespace: elasticdl' "$KUBECONFIG" || fail "the namespace is default, where nothing is" ;;
  esac
}

case "$tool $all" in
"curl -s https://checkip.amazonaws.com") echo 198.51.100.7 ;;
"docker info") ;;
"docker login --username AWS --password-stdin "*.amazonaws.com) grep -q . || fail "no password" ;;
"minikube version" | "kubectl version --client" | "aws --version") echo "$tool version v1" ;;
"make build") mkdir -p build && cp "$0" build/elasticdl ;;
"git clone https://github.com/elasticdl/elasticdl") ln -s . elasticdl ;; # the test has a copy already

"gcloud auth login --update-adc" | "gcloud services enable "*.googleapis.com" --project=a-project" | "gcloud components install gke-gcloud-auth-plugin") ;;
"gcloud compute project-info describe --project=a-project "* | "gcloud compute regions describe us-central1 --project=a-project "*)
  echo "{'limit': 0.0, 'metric': 'GPUS_ALL_REGIONS', 'usage': 0.0};{'limit': 0.0, 'metric': 'NVIDIA_T4_GPUS', 'usage': 0.0}" ;;
"gcloud compute accelerator-types list "*) echo nvidia-tesla-t4 ;;

"aws sts get-caller-identity"*) echo 123456789012 ;;
"aws service-quotas "*) echo 12.0 ;;
"aws ec2 describe-instance-type-offerings "*) echo us-west-2a ;;
"aws ec2 describe-network-interfaces --filters Name=vpc-id,Values=vpc-"*) echo eni-1 ;;
"aws ec2 delete-network-interface --network-interface-id eni-1") ;;
"aws ecr get-login-password --region us-west-2") echo UFJJVkFURS1LRVk= ;;
"aws s3 cp --recursive model_zoo s3://"?*/model_zoo) [ -d model_zoo ] || fail "there is no directory model_zoo" ;;
"aws eks list-nodegroups --cluster-name elasticdl-eks "*) echo worker-1 ;;
"aws eks update-nodegroup-config --cluster-name elasticdl-eks --nodegroup-name worker-1 --scaling-config desiredSize="?) ;;

"elasticdl zoo init --model_zoo=model_zoo"*) mkdir -p model_zoo ;;
"elasticdl zoo init" | "elasticdl zoo build --image="?*/?*" ." | "elasticdl zoo push "?*/?*) ;;
"elasticdl dataset mnist data/mnist") mkdir -p data/mnist ;;
"elasticdl status test-mnist"* | "elasticdl wait test-mnist"* | "elasticdl stop test-mnist"*) cluster; echo "test-mnist Running" ;;
"kubectl get pods"* | "kubectl create rolebinding "*" --role="?*" --group="?*) cluster; echo elasticdl-test-mnist-master ;;
"kubectl logs job/elasticdl-test-mnist-master"*) cluster; echo "Evaluation: accuracy=0.98" ;;
*) fail "no page's command: see stacks/testdata/page/tools.sh" 64 ;;
esac
