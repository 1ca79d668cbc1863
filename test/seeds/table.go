package seeds

// StandIn is a row of the table of what a test machine does not have.
type StandIn struct {
	// tutorial; "" = all
	Seed string
	// the commands that begin with this text
	Begins string
	// commands of a shell that are run in their place; "": nothing
	Instead string
	Why     string
}

// StandIns is the table of the commands that are not run as they stand. In the shell $REPOSITORY
// is this repository, $DIGITS a directory with digits of MNIST, $REGISTRY the registry of the
// test's cluster, $NODES the names of the tutorial's nodes, and $DATA_IMAGE an image that has the
// digits in /data.
var StandIns = []StandIn{
	// A cloud.
	{"", "gcloud container clusters get-credentials", "kubectl cluster-info",
		"no cloud: KUBECONFIG names the test's cluster"},
	{"", "gcloud container clusters list", "kubectl get nodes", "no cloud: the cluster is the test's"},
	{"", "gcloud config set project", "", "no cloud, so no project"},
	{"", "gcloud auth configure-docker", "", "the registry of the test's cluster asks for no credentials"},
	{"torchelastic", "eksctl create cluster", "kubectl get nodes", "no cloud: the cluster is the test's"},
	{"torchelastic", "kubectl create -f https://raw.githubusercontent.com/NVIDIA",
		`for node in $NODES; do kubectl patch node $node --subresource=status --type=merge -p '{"status":{"capacity":{"nvidia.com/gpu":"1"}}}'; done`,
		"no GPUs and no internet: nodes report a GPU each, as that DaemonSet has them do"},
	{"torchelastic", "kubectl apply -k", "", "no EFS: storage.yaml has a directory of the nodes"},

	// Data from the internet, and Docker.
	{"gke", "docker run", "elasticdl dataset mnist data/mnist --source=$DIGITS",
		"no Docker: elasticdl dataset makes the files"},
	{"minikube", "docker run", "elasticdl dataset mnist data/mnist --source=$DIGITS",
		"no Docker: elasticdl dataset makes the files"},
	{"gke-older", "python elasticdl/python/data/recordio_gen/image_label.py",
		"python elasticdl/python/data/recordio_gen/image_label.py --dataset mnist " +
			"--records_per_shard 4096 . --source=$DIGITS",
		"as it stands, but without a download"},
	{"torchelastic", "cat <<EOF", "elasticdl dataset images-synthetic --classes=4 --per_class=24 " +
		"--to=claim:efs-claim/tiny-imagenet-200 --image_name=$ELASTICDL_IMAGE",
		"no internet for centos, yum and the 237 MB of tiny-imagenet: pictures that are drawn here"},
	{"elastic-scheduling", "docker build",
		`elasticdl zoo build --image=$REGISTRY/${project_name}/elasticdl:dev --base_image=$DATA_IMAGE "$(command -v elasticdl)"`,
		"no Docker: elasticdl zoo build makes the image; that of the tutorial had the data in it, too"},
	{"elastic-scheduling", "docker push", "elasticdl zoo push $REGISTRY/${project_name}/elasticdl:dev",
		"no Docker: elasticdl zoo push"},

	// A hypervisor.
	{"minikube", "minikube start", "kubectl get nodes",
		"no hypervisor: a node of the test's cluster of that size, on which ./data is /data"},
	{"minikube", "eval $(minikube docker-env)", "export MINIKUBE_ACTIVE_DOCKERD=minikube",
		"no hypervisor: of all that docker-env prints, elasticdl zoo build reads this variable"},
	{"minikube", "kubectl apply -f",
		"kubectl apply -f $REPOSITORY/examples/elasticdl/elasticdl/manifests/elasticdl-rbac.yaml",
		"no internet: the file of the same path in examples/elasticdl"},

	// Packages of Python.
	{"gke", "pip install", "elasticdl version", "elasticdl is one binary, which is installed"},
	{"minikube", "pip install", "elasticdl version", "elasticdl is one binary, which is installed"},
	{"minikube", "scripts/travis/build_images.sh", "elasticdl zoo build --image=elasticdl:dev_allreduce .",
		"no Docker: elasticdl zoo build makes the base image with AllReduce"},
	{"minikube", "scripts/docker_build_wheel.sh", "", "there are no packages to build: every image has AllReduce"},

	// Differences of this ElasticDL.
	{"torchelastic", "kubectl apply -f etcd.yaml", "", "the master is the rendezvous: there is no etcd"},
	{"torchelastic", "sed -i '' 's/<EFS_ID>", `sed -i 's/<EFS_ID>/'"$EFS_ID"'/' storage.yaml`,
		"-i '' is for the sed of macOS"},
	{"torchelastic", "sed -i '' 's/<BUCKET>",
		`sed -i 's/<BUCKET>/'"$BUCKET"'/; s/<USER>/'"$USER"'/; s/<JOB_ID>/'"$JOB_ID"'/;' imagenet.yaml`,
		"-i '' is for the sed of macOS"},
	{"torchelastic", "kubectl logs -f imagenet-worker-1",
		`kubectl logs -f elasticdl-imagenet-worker-1 | sed '/iteration: 10,/q'`,
		"pods of a job have its prefix; a reader stops where the page does"},
}
