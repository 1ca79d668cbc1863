#!/bin/sh
# Simulates the commands that the pages tell people to run, under their names. A shell runs the
# blocks of a page, and finds these commands. A command or flag that is not in this file is refused.
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

# document keeps what is sent to somebody who reads JSON: the test reads it, too.
document() { mkdir -p documents && cat >documents/$$; }
for last; do :; done

# Files of credentials, where the simulated providers look for them, too.
google=$HOME/.config/gcloud/application_default_credentials.json amazon=$HOME/.aws/credentials
wrote() { mkdir -p "$(dirname "$1")" && : >"$1"; }
case "$tool $all" in
"gcloud auth login --update-adc") wrote "$google" ;;
"aws configure") wrote "$amazon" ;;
"gcloud components install "* | "aws --version") ;;
"gcloud "*) [ -f "$google" ] || fail "You do not currently have an active account selected." ;;
"aws "*) [ -f "$amazon" ] || fail "Unable to locate credentials. You can configure credentials by running \"aws configure\"." 253 ;;
esac

case "$tool $all" in
"curl -s https://checkip.amazonaws.com") echo 198.51.100.7 ;;
"docker info" | "docker login ghcr.io") ;;
"kubectl config current-context") grep -q 'current-context: kind-mine' "$KUBECONFIG"; echo kind-mine ;;
"kubectl get storageclass") echo "standard (default)" ;;
"docker login --username AWS --password-stdin "*.amazonaws.com) grep -q . || fail "no password" ;;
"minikube version" | "kubectl version --client" | "aws --version") echo "$tool version v1" ;;
"make build") mkdir -p build && cp "${ELASTICDL_BUILT:-$0}" build/elasticdl ;; # the real one, if there is a cluster for it
"git clone https://github.com/elasticdl/elasticdl") ln -s . elasticdl ;; # the test has a copy already

"gcloud auth login --update-adc" | "aws configure") ;;
"gcloud services enable "*.googleapis.com" --project=a-project" | "gcloud components install gke-gcloud-auth-plugin") ;;
"gcloud compute project-info describe --project=a-project "* | "gcloud compute regions describe us-central1 --project=a-project "*)
  echo "{'limit': 0.0, 'metric': 'GPUS_ALL_REGIONS', 'usage': 0.0};{'limit': 0.0, 'metric': 'NVIDIA_T4_GPUS', 'usage': 0.0}" ;;
"gcloud projects describe a-project --format=value(projectNumber)") echo 4711 ;;
"gcloud beta services identity create --service="*".googleapis.com --project=a-project") ;;
"gcloud storage service-agent --project=a-project --authorize-cmek=projects/"*"/cryptoKeys/training") ;;
"gcloud kms keys add-iam-policy-binding projects/"*"/cryptoKeys/training --role=roles/cloudkms.cryptoKeyEncrypterDecrypter --member=serviceAccount:service-4711@"*".iam.gserviceaccount.com") ;;
"gcloud kms keys add-iam-policy-binding projects/a-host/"*"/cryptoKeys/training --member=serviceAccount:pulumi-gke-preview@a-project.iam.gserviceaccount.com --role=roles/cloudkms.viewer") ;;
"gcloud compute accelerator-types list "*) echo nvidia-tesla-t4 ;;

"aws sts get-caller-identity"*) echo 123456789012 ;;
"aws service-quotas "*) echo 12.0 ;;
"aws ce update-cost-allocation-tags-status --cost-allocation-tags-status TagKey=elasticdl-stack,Status=Active") ;;
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
"kubectl logs elasticdl-test-mnist-master"*) cluster; echo "Evaluation: accuracy=0.98" ;;

"gh api user --jq .id") echo 1 ;;
"gh api -X PUT repos/owner/name/environments/"*"-preview") ;;
"kubectl config view --minify --flatten") cat "$KUBECONFIG" ;;
"kubectl config view --minify --raw -o json") echo '{"users": [{"user": {"exec": {"command": "aws"}}}]}' ;;
"gh api -X PUT repos/owner/name/environments/gke --input -" | "gh api -X PUT repos/owner/name/environments/existing --input -" | "gh api -X PUT repos/owner/name/environments/eks --input -") document ;;
"gh variable set "[A-Z]*" --repo owner/name --body "?* | "gh variable set "[A-Z]*" --repo owner/name --env "?*" --body "?*) ;;

"gcloud storage buckets create gs://a-project-pulumi --project=a-project --location="* | "gcloud storage buckets update gs://a-project-pulumi --versioning") ;;
"gcloud storage buckets add-iam-policy-binding gs://a-project-pulumi --member=serviceAccount:pulumi-gke"*"@a-project.iam.gserviceaccount.com --role=roles/storage."*) ;;
"gcloud kms keyrings create pulumi --project=a-project --location=global") ;;
"gcloud kms keys create state --project=a-project --location=global --keyring=pulumi --purpose=encryption") ;;
"gcloud kms keys add-iam-policy-binding state --project=a-project --location=global --keyring=pulumi --member=serviceAccount:pulumi-gke"*" --role=roles/cloudkms.cryptoKeyDecrypter") ;;
"gcloud iam workload-identity-pools create github --project=a-project --location=global") ;;
"gcloud iam workload-identity-pools providers create-oidc github --project=a-project "*" --attribute-condition=assertion.repository == 'owner/name'") ;;
"gcloud iam workload-identity-pools describe github --project=a-project --location=global --format=value(name)") echo projects/1/locations/global/workloadIdentityPools/github ;;
"gcloud iam service-accounts create pulumi-gke"*" --project=a-project") ;;
"gcloud iam service-accounts add-iam-policy-binding pulumi-gke"*"@a-project.iam.gserviceaccount.com --project=a-project --role=roles/iam.workloadIdentityUser --member=principal://iam.googleapis.com/projects/1/"*"/subject/repo:owner/name:environment:gke"*) ;;
"gcloud projects add-iam-policy-binding a-project --condition=None --member=serviceAccount:pulumi-gke"*"@a-project.iam.gserviceaccount.com --role=roles/"?*) ;;

"gcloud billing projects describe a-project "*) echo 012345-567890-ABCDEF ;;
"gcloud billing accounts add-iam-policy-binding 012345-567890-ABCDEF --member=serviceAccount:pulumi-gke"*" --role=roles/billing."?*) ;;
"aws s3api create-bucket --bucket a-bucket --region us-west-2 "* | "aws s3api put-bucket-versioning --bucket a-bucket "*) ;;
"aws kms create-key --region us-west-2 "*) echo a-key ;;
"aws kms create-alias --alias-name alias/pulumi --region us-west-2 --target-key-id a-key") ;;
"gcloud billing projects describe a-project "*) echo 012345-567890-ABCDEF ;;
"gcloud billing accounts add-iam-policy-binding 012345-567890-ABCDEF --member=serviceAccount:pulumi-gke"*"@a-project.iam.gserviceaccount.com --role=roles/billing."*) ;;
"gcloud compute networks subnets add-iam-policy-binding nodes --project=a-host --region=us-central1 --member=serviceAccount:pulumi-gke-preview@a-project.iam.gserviceaccount.com --role=roles/compute.networkUser") ;;
"gcloud artifacts repositories add-iam-policy-binding team --project=a-host --location=us --member=serviceAccount:pulumi-gke-preview@a-project.iam.gserviceaccount.com --role=roles/artifactregistry.reader") ;;
"gcloud storage buckets add-iam-policy-binding gs://data-of-the-team --member=serviceAccount:pulumi-gke-preview@a-project.iam.gserviceaccount.com --role=roles/storage.legacyBucketReader") ;;
"aws iam put-role-policy --role-name pulumi-eks-preview --policy-name parts --policy-document "*) printf '%s' "$last" | document ;;
"aws iam create-open-id-connect-provider --url https://token.actions.githubusercontent.com --client-id-list sts.amazonaws.com") ;;
"aws iam create-role --role-name pulumi-eks"*" --assume-role-policy-document "*) printf '%s' "$last" | document ;;
"aws iam put-role-policy --role-name pulumi-eks-preview --policy-name preview --policy-document "*) printf '%s' "$last" | document ;;
"aws iam attach-role-policy --role-name pulumi-eks"*" --policy-arn arn:aws:iam::aws:policy/"?*) ;;
*) fail "no page's command: see stacks/testdata/page/tools.sh" 64 ;;
esac
