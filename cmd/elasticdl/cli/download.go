package cli

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/image"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func downloadCommand() *cobra.Command {
	var d downloading
	cmd := &cobra.Command{
		Use:   "download JOB|claim:NAME/PATH OUT",
		Short: "Copy the trained model of a job, or a directory of a claim, to this machine",
		Long: `Copy the trained model of a job, or a directory of a PersistentVolumeClaim, to this machine.

A job that has succeeded has an exported model; of other jobs the newest checkpoint is copied. The
model is written to OUT/` + checkpoint.ModelFile +
			`, which appears at the end, complete and verified. A claim is read by a
temporary pod with the job's image or --image_name.`,
		Example: "  elasticdl download test-mnist model\n" +
			"  elasticdl download claim:fileserver-claim/mnist data/mnist --image_name=REGISTRY/elasticdl:mnist",
		ValidArgsFunction: d.location.complete,
		Args:              d.parse,
		PreRunE:           d.location.check,
		RunE:              command.Does(func(cmd *cobra.Command, _ []string) error { return d.run(cmd) }),
	}
	d.location.flags(cmd)
	cmd.Flags().StringVar(&d.copy.Image, "image_name", "",
		"image of the pod that mounts the claim; default: the job's")
	cmd.Flags().StringVar(&d.copy.Pull, "image_pull_policy", "",
		"Always, IfNotPresent or Never; default: the job's, else the cluster's")
	return cmd
}

// downloading holds the arguments of the download command.
type downloading struct {
	// name of the job; "": copy names a claim
	name string
	// note about a model that is not the trained one; "": none
	note     string
	copy     kube.Copy
	location location
}

func (d *downloading) parse(_ *cobra.Command, args []string) error {
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		return errors.New("expected a job and a directory to write to, as: elasticdl download test-mnist model")
	}
	var problems []error
	d.copy.To = args[1]
	if strings.Contains(args[1], "://") {
		problems = append(problems, fmt.Errorf("OUT=%s: expected a directory of this machine", args[1]))
	}
	if of, ok := strings.CutPrefix(args[0], "claim:"); ok {
		claim, path, _ := strings.Cut(of, "/")
		d.copy.Claim, d.copy.From = claim, strings.Trim(path, "/")
		if claim == "" || !filepath.IsLocal(d.copy.From) ||
			filepath.Clean(d.copy.From) != d.copy.From || d.copy.From == "." {
			problems = append(problems,
				fmt.Errorf("%s: expected claim:NAME/PATH, a PersistentVolumeClaim and a directory on it", args[0]))
		}
		if d.copy.Image == "" {
			problems = append(problems,
				errors.New("--image_name: expected an image of elasticdl zoo push, for the pod that mounts the claim"))
		}
	} else {
		d.name, d.copy.Model = args[0], true
	}
	if err := image.CheckReference(d.copy.Image); d.copy.Image != "" && err != nil {
		problems = append(problems, fmt.Errorf("--image_name=%s: %w", d.copy.Image, err))
	}
	if !slices.Contains([]string{"", "Always", "IfNotPresent", "Never"}, d.copy.Pull) {
		problems = append(problems,
			fmt.Errorf("--image_pull_policy=%s: expected Always, IfNotPresent or Never", d.copy.Pull))
	}
	return errors.Join(problems...)
}

func (d *downloading) run(cmd *cobra.Command) error {
	show := &steps{out: cmd.ErrOrStderr()}
	defer show.close()
	progress := func(p kube.CopyProgress) {
		show.show(stepProgress{Step: p.Step, Bytes: true, Done: p.Done, Total: p.Total})
	}
	if d.name == "" {
		client, err := d.location.connect(cmd)
		if err != nil {
			return err
		}
		return d.fromClaim(cmd, client, progress)
	}
	home, err := d.location.find(cmd, d.name)
	if err != nil {
		return hint(err)
	}
	s, err := home.Status(cmd.Context(), d.name)
	if err != nil {
		return hint(err)
	}
	client, cluster := home.(*kube.Client)
	j, err := (*job.Job)(nil), error(nil)
	if cluster {
		j, err = client.Job(cmd.Context(), d.name)
	} else {
		j, err = local.Job(d.name)
	}
	if err != nil {
		return hint(err)
	}
	from, err := modelOf(j, s)
	if err != nil {
		return err
	}
	d.note = untrained(j, s, from)
	if cluster && !job.InBucket(from) {
		var ok bool
		if d.copy.Claim, d.copy.From, ok = j.OnClaim(from); !ok {
			return fmt.Errorf("job %s: its model is in %s, which is on no claim; copy it from the "+
				"node that has it", j.Name, from)
		}
		d.copy.Image, d.copy.Pull = cmp.Or(d.copy.Image, j.Image), cmp.Or(d.copy.Pull, j.ImagePullPolicy)
		return d.fromClaim(cmd, client, progress)
	}
	existed, err := kube.Fetch(cmd.Context(), bucket.Opener(cmd.Context()), from, d.copy.To, progress)
	if err != nil {
		return fmt.Errorf("job %s: %w", j.Name, err)
	}
	return d.done(cmd, from, existed)
}

func (d *downloading) fromClaim(cmd *cobra.Command, client *kube.Client, progress func(kube.CopyProgress)) error {
	existed, err := client.CopyFromClaim(cmd.Context(), d.copy, progress)
	if err != nil {
		return err
	}
	return d.done(cmd, "claim:"+d.copy.Claim+"/"+d.copy.From, existed)
}

func (d *downloading) done(cmd *cobra.Command, from string, existed bool) error {
	to := d.copy.To
	if d.copy.Model {
		to = filepath.Join(to, checkpoint.ModelFile)
	}
	verb := "written to"
	if existed {
		verb = "already exists:"
	}
	_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s %s\n", from, verb, to)
	if d.note != "" {
		fmt.Fprintln(notes{cmd.ErrOrStderr()}, "note:", d.note)
	}
	return err
}

// untrained returns a note that the model of a job is that of a checkpoint, "" if it is the trained
// model.
func untrained(j *job.Job, s *wire.JobStatus, from string) string {
	if s.State == string(job.Succeeded) || from != j.CheckpointDir {
		return ""
	}
	at := ""
	if c := s.GetCheckpoint(); c.GetNumber() > 0 {
		at = fmt.Sprintf(" (%s of %s records)", logline.Thousands(c.Records), logline.Thousands(s.RecordsTotal))
	}
	return fmt.Sprintf("this is the model of the newest checkpoint%s, not the trained model: job "+
		"%s is %s", at, j.Name, s.State)
}

// modelOf returns the place of a job's model: the exported one, or the directory of checkpoints.
func modelOf(j *job.Job, s *wire.JobStatus) (string, error) {
	switch out := cmp.Or(j.Output, j.ResultDir()); {
	case !j.Trains():
		return "", fmt.Errorf("job %s: it has trained no model; %s", j.Name,
			cmp.Or(result(s), "its results are in its status and its log"))
	case s.State == string(job.Succeeded) && out != "":
		return out, nil
	case j.CheckpointDir != "":
		return j.CheckpointDir, nil
	case job.State(s.State).Ended():
		return "", fmt.Errorf("job %s: there is no model: it has ended (%s) without --output, "+
			"checkpoints or a --volume with a claim_name", j.Name, s.State)
	}
	return "", fmt.Errorf("job %s: there is no model yet, and the job makes no checkpoints; wait "+
		"for its end: elasticdl wait %[1]s", j.Name)
}

// sendCommand returns the command that runs in the pod of download.
func sendCommand() *cobra.Command {
	var from string
	var model bool
	cmd := &cobra.Command{
		Use:    "send",
		Short:  "Write the files of a directory to standard output (started by download)",
		Hidden: true,
		Args:   command.Words(0, 0),
		PreRunE: func(*cobra.Command, []string) error {
			if from == "" {
				return errors.New("expected --from=DIRECTORY")
			}
			return nil
		},
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error {
			return kube.Send(cmd.Context(), bucket.Opener(cmd.Context()), from, model, cmd.OutOrStdout())
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "directory whose files are sent")
	cmd.Flags().BoolVar(&model, "model", false, "send the model in the directory, exported or as a checkpoint")
	return cmd
}
