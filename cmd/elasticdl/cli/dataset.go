package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/data/dataset"
)

func datasetCommand() *cobra.Command {
	var d datasetRun
	names := strings.Join(dataset.Names(), ", ")
	cmd := &cobra.Command{
		Use:   "dataset NAME OUT",
		Short: "Write a public data set as RecordIO or as images: " + names,
		Long: "Write a public data set.\n\nNAME is " + strings.Join(dataset.Names(), " or ") + `.

mnist, fashion-mnist and cifar10 are written as RecordIO files in OUT/train and OUT/test, for the
built-in models. The others are written as images, one directory per class, for torchvision's
ImageFolder:

  mnist-png         OUT/training/DIGIT/*.png and OUT/testing/DIGIT/*.png, from the source of mnist
  tiny-imagenet     OUT/train/WNID/images/*.JPEG and OUT/val/WNID/images/*.JPEG: 110,000 images of
                    200 classes, a download of 237 MB
  images-synthetic  OUT/train/CLASS/*.jpeg and OUT/val/CLASS/*.jpeg: generated for tests

Without --source a data set is downloaded from public mirrors. cifar10 has no mirror.

With --to=claim:NAME/PATH the data set is copied to a PersistentVolumeClaim of a cluster, by a
temporary pod that mounts the claim and runs --image_name; OUT is optional. The files appear at the
end, complete and verified. With --to=s3://BUCKET/PREFIX or gs://BUCKET/PREFIX it is copied to a
bucket, from where jobs read it, with the credentials of this machine. Each file appears complete,
and another call continues after an error.`,
		Example: "  elasticdl dataset mnist data/mnist\n" +
			"  elasticdl dataset mnist --to=s3://datasets/mnist?region=us-west-2\n" +
			"  elasticdl dataset images-synthetic data/images --classes=4 --per_class=50\n" +
			"  elasticdl dataset mnist --to claim:fileserver-claim/mnist --image_name=REGISTRY/elasticdl:mnist",
		ValidArgs: dataset.Names(),
		Args:      func(cmd *cobra.Command, args []string) error { return d.check(cmd, args) },
		RunE:      command.Does(func(cmd *cobra.Command, _ []string) error { return d.run(cmd) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&d.Source, "source", "", "directory or URL of the data set's files, plain or gzip")
	flags.IntVar(&d.RecordsPerShard, "records_per_shard", 4096, "number of records per RecordIO file")
	flags.IntVar(&d.Synthetic.Classes, "classes", 4, "images-synthetic: number of classes")
	flags.IntVar(&d.Synthetic.PerClass, "per_class", 50,
		"images-synthetic: number of training images per class; validation has a fifth of it")
	flags.IntVar(&d.Synthetic.Size, "size", 64, "images-synthetic: width and height in pixels")
	flags.Uint64Var(&d.Synthetic.Seed, "seed", 0, "images-synthetic: seed of the generator")
	flags.StringVar(&d.to, "to", "",
		"destination claim:NAME/PATH: a directory of a PersistentVolumeClaim; or s3://… or gs://…")
	flags.StringVar(&d.copy.Image, "image_name", "", "image of the pod of --to, as printed by zoo push")
	flags.StringVar(&d.copy.Pull, "image_pull_policy", "",
		"Always, IfNotPresent or Never; default: the cluster's")
	d.location.clusterFlags(cmd)
	d.location.retryFlags(cmd)
	return cmd
}

// datasetRun holds the arguments of the dataset command.
type datasetRun struct {
	dataset.Options
	to       string
	copy     kube.Copy
	location location
}

// check returns all mistakes in the arguments and flags.
func (d *datasetRun) check(cmd *cobra.Command, args []string) error {
	var problems []error
	switch {
	case len(args) == 2:
		d.Name, d.Out = args[0], args[1]
	case len(args) == 1 && d.to != "":
		d.Name = args[0]
	default:
		problems = append(problems,
			errors.New("expected the name of a data set and a directory, as: elasticdl dataset mnist data/mnist"))
	}
	problems = append(problems, d.checkSet(cmd)...)
	if err := d.location.checkRetry(); err != nil {
		problems = append(problems, err)
	}
	if d.to == "" {
		for _, name := range []string{"image_name", "image_pull_policy", "namespace", "context",
			"kubeconfig", retryFlag} {
			if f := cmd.Flags().Lookup(name); f.Changed {
				problems = append(problems,
					fmt.Errorf("--%s=%s: requires --to=claim:NAME/PATH", name, f.Value))
			}
		}
		return errors.Join(problems...)
	}
	if d.toBucket() {
		if _, err := checkpoint.ParseLocation(d.to); err != nil {
			problems = append(problems, fmt.Errorf("--to=%w", err))
		}
		for _, name := range []string{"image_name", "image_pull_policy", "namespace", "context", "kubeconfig"} {
			if f := cmd.Flags().Lookup(name); f.Changed {
				problems = append(problems, fmt.Errorf("--%s=%s: has no effect on a bucket; remove it", name, f.Value))
			}
		}
		return errors.Join(problems...)
	}
	claim, path, _ := strings.Cut(strings.TrimPrefix(d.to, "claim:"), "/")
	d.copy.Claim, d.copy.To = claim, strings.Trim(path, "/")
	if !strings.HasPrefix(d.to, "claim:") || claim == "" || !filepath.IsLocal(d.copy.To) ||
		filepath.Clean(d.copy.To) != d.copy.To || d.copy.To == "." {
		problems = append(problems,
			fmt.Errorf("--to=%s: expected claim:NAME/PATH, a PersistentVolumeClaim and a directory on it, or "+
				"s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", d.to))
	}
	if d.copy.Image == "" {
		problems = append(problems,
			errors.New("--image_name: expected an image of elasticdl zoo push, for the pod that --to needs"))
	} else if err := image.CheckReference(d.copy.Image); err != nil {
		problems = append(problems, fmt.Errorf("--image_name=%s: %w", d.copy.Image, err))
	}
	if !slices.Contains([]string{"", "Always", "IfNotPresent", "Never"}, d.copy.Pull) {
		problems = append(problems,
			fmt.Errorf("--image_pull_policy=%s: expected Always, IfNotPresent or Never", d.copy.Pull))
	}
	return errors.Join(problems...)
}

// toBucket reports whether the data set is copied to a bucket.
func (d *datasetRun) toBucket() bool { return strings.Contains(d.to, "://") }

// checkSet returns the mistakes in the flags that only some data sets have.
func (d *datasetRun) checkSet(cmd *cobra.Command) (problems []error) {
	layout, known := dataset.LayoutOf(d.Name)
	if !known {
		return nil // the error of Make lists the names
	}
	for _, name := range []string{"source", "records_per_shard", "classes", "per_class", "size", "seed"} {
		if f := cmd.Flags().Lookup(name); f.Changed && !slices.Contains(layout.Flags, name) {
			problems = append(problems, fmt.Errorf("--%s=%s: has no effect on %s; remove it", name, f.Value, d.Name))
		}
	}
	for _, f := range []struct {
		name  string
		value int
	}{{"records_per_shard", d.RecordsPerShard}, {"classes", d.Synthetic.Classes},
		{"per_class", d.Synthetic.PerClass}, {"size", d.Synthetic.Size}} {
		if f.value < 1 {
			problems = append(problems, fmt.Errorf("--%s=%d: expected 1 or more", f.name, f.value))
		}
	}
	return problems
}

func (d *datasetRun) run(cmd *cobra.Command) error {
	var cluster *kube.Client
	if d.to != "" && !d.toBucket() {
		var err error
		if cluster, err = d.location.connect(cmd); err != nil {
			return command.Usage(fmt.Errorf("--to=%s: %w", d.to, err))
		}
	}
	if d.Out == "" {
		work, err := os.MkdirTemp("", "elasticdl-dataset-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(work)
		d.Out = filepath.Join(work, d.Name)
	}
	show := &steps{out: cmd.ErrOrStderr()}
	defer show.close()
	made, err := dataset.Make(cmd.Context(), d.Options, func(p dataset.Progress) { show.show(stepProgress(p)) })
	if err != nil {
		return err
	}
	target, existed := d.Out, made.Existed
	if cluster != nil {
		d.copy.From, target = d.Out, d.to
		existed, err = cluster.CopyToClaim(cmd.Context(), d.copy, func(p kube.CopyProgress) {
			show.show(stepProgress{Step: p.Step, Bytes: true, Done: p.Done, Total: p.Total})
		})
		if err != nil {
			return err
		}
	}
	if d.toBucket() {
		target = strings.TrimSuffix(strings.SplitN(d.to, "?", 2)[0], "/")
		existed, err = bucket.Upload(cmd.Context(), d.Out, d.to, func(done, total int64) {
			show.show(stepProgress{Step: "upload", Bytes: true, Done: done, Total: total})
		})
		if err != nil {
			return err
		}
	}
	show.close()
	what := "written"
	if existed {
		what = "already exists"
	}
	layout, _ := dataset.LayoutOf(d.Name)
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s %s: %s in %s/%s, %s in %[4]s/%[7]s\n",
		d.Name, what, count(made.Train, layout.Unit), target, layout.Train, count(made.Test, layout.Unit), layout.Test)
	return err
}

// receiveCommand returns the command that runs in the pod of --to.
func receiveCommand() *cobra.Command {
	var to string
	var hold bool
	cmd := &cobra.Command{
		Use:    "receive",
		Short:  "Write files from standard input (started by dataset --to)",
		Hidden: true,
		Args:   command.Words(0, 0),
		PreRunE: func(*cobra.Command, []string) error {
			if (to == "") != hold {
				return errors.New("expected --to=DIRECTORY or --hold")
			}
			return nil
		},
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error {
			if hold {
				<-cmd.Context().Done()
				return nil
			}
			return kube.Receive(cmd.InOrStdin(), cmd.OutOrStdout(), to)
		}),
	}
	cmd.Flags().StringVar(&to, "to", "", "directory for the files")
	cmd.Flags().BoolVar(&hold, "hold", false, "wait until the pod is deleted, as its first process")
	return cmd
}
