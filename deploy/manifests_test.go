// Package deploy_test holds the manifests for containers to what the code
// says: settings exist, time-outs leave room, images are pinned.
package deploy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/pushfleet/pushfleet/configs"
)

// pod is the part of a Kubernetes pod that we use. A field that is not here is
// refused: it is misspelt, or new and to be added with a thought.
type pod struct {
	AutomountServiceAccountToken  *bool `yaml:"automountServiceAccountToken"`
	TerminationGracePeriodSeconds int   `yaml:"terminationGracePeriodSeconds"`
	SecurityContext               struct {
		RunAsNonRoot   bool              `yaml:"runAsNonRoot"`
		RunAsUser      int               `yaml:"runAsUser"`
		RunAsGroup     int               `yaml:"runAsGroup"`
		FSGroup        int               `yaml:"fsGroup"`
		SeccompProfile map[string]string `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	TopologySpreadConstraints []struct {
		MaxSkew           int      `yaml:"maxSkew"`
		TopologyKey       string   `yaml:"topologyKey"`
		WhenUnsatisfiable string   `yaml:"whenUnsatisfiable"`
		LabelSelector     selector `yaml:"labelSelector"`
	} `yaml:"topologySpreadConstraints"`
	Containers []container `yaml:"containers"`
	Volumes    []struct {
		Name      string            `yaml:"name"`
		ConfigMap map[string]string `yaml:"configMap"`
		Secret    struct {
			SecretName  string `yaml:"secretName"`
			DefaultMode int    `yaml:"defaultMode"`
		} `yaml:"secret"`
	} `yaml:"volumes"`
}

type container struct {
	Name    string              `yaml:"name"`
	Image   string              `yaml:"image"`
	Command []string            `yaml:"command"`
	Env     []map[string]string `yaml:"env"`
	Ports   []struct {
		Name          string `yaml:"name"`
		ContainerPort int    `yaml:"containerPort"`
	} `yaml:"ports"`
	LivenessProbe   probe                        `yaml:"livenessProbe"`
	ReadinessProbe  probe                        `yaml:"readinessProbe"`
	Resources       map[string]map[string]string `yaml:"resources"`
	SecurityContext struct {
		AllowPrivilegeEscalation *bool               `yaml:"allowPrivilegeEscalation"`
		ReadOnlyRootFilesystem   bool                `yaml:"readOnlyRootFilesystem"`
		Capabilities             map[string][]string `yaml:"capabilities"`
	} `yaml:"securityContext"`
	VolumeMounts []struct {
		Name      string `yaml:"name"`
		MountPath string `yaml:"mountPath"`
		ReadOnly  bool   `yaml:"readOnly"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet          map[string]string `yaml:"httpGet"`
	PeriodSeconds    int               `yaml:"periodSeconds"`
	TimeoutSeconds   int               `yaml:"timeoutSeconds"`
	FailureThreshold int               `yaml:"failureThreshold"`
}

type selector struct {
	MatchLabels map[string]string `yaml:"matchLabels"`
}

type metadata struct {
	Name        string            `yaml:"name"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// object is any of the Kubernetes objects that we use.
type object struct {
	APIVersion string            `yaml:"apiVersion"`
	Kind       string            `yaml:"kind"`
	Metadata   metadata          `yaml:"metadata"`
	Data       map[string]string `yaml:"data"`
	Spec       struct {
		Replicas int      `yaml:"replicas"`
		Selector selector `yaml:"selector"`
		Strategy struct {
			Type          string         `yaml:"type"`
			RollingUpdate map[string]int `yaml:"rollingUpdate"`
		} `yaml:"strategy"`
		Template struct {
			Metadata metadata `yaml:"metadata"`
			Spec     pod      `yaml:"spec"`
		} `yaml:"template"`
		MaxUnavailable             int    `yaml:"maxUnavailable"`
		UnhealthyPodEvictionPolicy string `yaml:"unhealthyPodEvictionPolicy"`
	} `yaml:"spec"`
}

// objects reads every manifest of deploy/kubernetes, strictly.
func objects(t *testing.T) []object {
	t.Helper()
	paths, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	var all []object
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewDecoder(bytes.NewReader(text))
		decoder.KnownFields(true)
		for {
			var o object
			err := decoder.Decode(&o)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			all = append(all, o)
		}
	}
	return all
}

func find(t *testing.T, kind, name string) object {
	t.Helper()
	for _, o := range objects(t) {
		if o.Kind == kind && o.Metadata.Name == name {
			return o
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return object{}
}

func TestKubernetesKinds(t *testing.T) {
	versions := map[string]string{"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1", "ConfigMap": "v1"}
	for _, o := range objects(t) {
		if versions[o.Kind] == "" || versions[o.Kind] != o.APIVersion {
			t.Errorf("%s %s has apiVersion %q", o.Kind, o.Metadata.Name, o.APIVersion)
		}
	}
}

func TestKubernetesDeployments(t *testing.T) {
	settings := kubernetesConfig(t)
	_, adminPort, _ := strings.Cut(settings.Admin.Listen, ":")
	for name, subcommand := range map[string]string{"pushworker": "run", "pushregistry": "registry"} {
		d := find(t, "Deployment", name)
		p := d.Spec.Template.Spec
		if fmt.Sprint(d.Spec.Selector.MatchLabels) != fmt.Sprint(d.Spec.Template.Metadata.Labels) {
			t.Errorf("%s selects other labels than its pods have", name)
		}
		grace := time.Duration(p.TerminationGracePeriodSeconds) * time.Second
		if needed := settings.Send.Drain + settings.Kafka.CommitTimeout + 10*time.Second; grace < needed {
			t.Errorf("%s is killed after %v; draining and committing take up to %v with a margin", name, grace, needed)
		}
		if s := p.SecurityContext; !s.RunAsNonRoot || s.RunAsUser == 0 || s.SeccompProfile["type"] != "RuntimeDefault" {
			t.Errorf("%s: security context of the pod is %+v", name, s)
		}
		if p.AutomountServiceAccountToken == nil || *p.AutomountServiceAccountToken {
			t.Errorf("%s gets a token of the cluster's API, which it does not use", name)
		}
		c := p.Containers[0]
		if want := []string{"pushworker", subcommand, "--config", "/etc/pushfleet/config/worker.yaml"}; !slices.Equal(c.Command, want) {
			t.Errorf("%s runs %q, want %q", name, c.Command, want)
		}
		if s := c.SecurityContext; s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation ||
			!s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities["drop"], []string{"ALL"}) {
			t.Errorf("%s: security context of the container is %+v", name, s)
		}
		if c.LivenessProbe.HTTPGet["path"] != "/livez" || c.ReadinessProbe.HTTPGet["path"] != "/readyz" ||
			c.LivenessProbe.HTTPGet["port"] != "admin" || c.ReadinessProbe.HTTPGet["port"] != "admin" {
			t.Errorf("%s: probes are %+v and %+v", name, c.LivenessProbe, c.ReadinessProbe)
		}
		if c.Ports[0].Name != "admin" || strconv.Itoa(c.Ports[0].ContainerPort) != adminPort ||
			d.Spec.Template.Metadata.Annotations["prometheus.io/port"] != adminPort {
			t.Errorf("%s: port %+v, but admin.listen is %s", name, c.Ports[0], settings.Admin.Listen)
		}
		pinned(t, name, c.Image)
		for i, volume := range p.Volumes {
			if mount := c.VolumeMounts[i]; mount.Name != volume.Name || !mount.ReadOnly {
				t.Errorf("%s: volume %s is mounted as %+v", name, volume.Name, mount)
			}
		}
	}
	worker, budget := find(t, "Deployment", "pushworker"), find(t, "PodDisruptionBudget", "pushworker")
	if worker.Spec.Replicas < 2 {
		t.Errorf("%d workers are no fleet", worker.Spec.Replicas)
	}
	if fmt.Sprint(worker.Spec.Selector) != fmt.Sprint(budget.Spec.Selector) || budget.Spec.MaxUnavailable != 1 {
		t.Errorf("the disruption budget is %+v", budget.Spec)
	}
}

// kubernetesConfig is the worker's configuration in the ConfigMap, over the
// defaults. Parsing refuses what the worker would refuse, misspelt keys too.
func kubernetesConfig(t *testing.T) *configs.Config {
	t.Helper()
	text := find(t, "ConfigMap", "pushfleet").Data["worker.yaml"]
	c, err := configs.Parse([]byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Apps) == 0 {
		t.Fatal("it has no app")
	}
	return c
}

// Every secret that the configuration names is in the command that the comment
// at its top gives to make them.
func TestKubernetesSecretsAreListed(t *testing.T) {
	text, err := os.ReadFile("kubernetes/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`/etc/pushfleet/secrets/([\w.-]+)`).FindAllStringSubmatch(string(text), -1)
	if len(named) == 0 {
		t.Fatal("no secret is named")
	}
	for _, match := range named {
		if !strings.Contains(string(text), "--from-file="+match[1]) {
			t.Errorf("secret %s is not among those that the comment makes", match[1])
		}
	}
}

func TestKubernetesMemory(t *testing.T) {
	need := int64(kubernetesConfig(t).MemoryBound().Total()) >> 20
	resources := find(t, "Deployment", "pushworker").Spec.Template.Spec.Containers[0].Resources
	limit, err := strconv.ParseInt(strings.TrimSuffix(resources["limits"]["memory"], "Gi"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if limit<<10 < need {
		t.Errorf("a worker may need %d MiB and is killed at %d GiB", need, limit)
	}
}

// composeService is the part of a Compose service that we use.
type composeService struct {
	Image       string            `yaml:"image"`
	Build       map[string]string `yaml:"build"`
	Environment map[string]string `yaml:"environment"`
	Command     []string          `yaml:"command"`
	Entrypoint  []string          `yaml:"entrypoint"`
	Profiles    []string          `yaml:"profiles"`
	Ports       []string          `yaml:"ports"`
	Volumes     []string          `yaml:"volumes"`
	ReadOnly    bool              `yaml:"read_only"`
	CapDrop     []string          `yaml:"cap_drop"`
	SecurityOpt []string          `yaml:"security_opt"`
	Restart     string            `yaml:"restart"`
	StopGrace   time.Duration     `yaml:"stop_grace_period"`
	DependsOn   map[string]struct {
		Condition string `yaml:"condition"`
	} `yaml:"depends_on"`
	Healthcheck struct {
		Test     []string      `yaml:"test"`
		Interval time.Duration `yaml:"interval"`
		Timeout  time.Duration `yaml:"timeout"`
		Retries  int           `yaml:"retries"`
	} `yaml:"healthcheck"`
}

func TestCompose(t *testing.T) {
	text, err := os.ReadFile("compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	var file struct {
		Name     string                    `yaml:"name"`
		Shared   composeService            `yaml:"x-pushfleet"`
		Services map[string]composeService `yaml:"services"`
		Volumes  map[string]any            `yaml:"volumes"`
	}
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kafka", "redis", "cassandra", "topics", "schema", "pushsim", "registry", "worker"} {
		if _, is := file.Services[name]; !is {
			t.Errorf("there is no service %s", name)
		}
	}
	for name, s := range file.Services {
		if s.Build == nil {
			pinned(t, name, s.Image)
		}
		for _, port := range s.Ports {
			if !strings.HasPrefix(port, "127.0.0.1:") {
				t.Errorf("%s publishes %s beyond this machine", name, port)
			}
		}
		for _, volume := range s.Volumes {
			source, _, _ := strings.Cut(volume, ":")
			if _, is := file.Volumes[source]; !is {
				t.Errorf("%s uses volume %s, which is not declared", name, source)
			}
		}
		for other, on := range s.DependsOn {
			dependency, is := file.Services[other]
			if !is || on.Condition == "service_healthy" && len(dependency.Healthcheck.Test) == 0 {
				t.Errorf("%s waits for %s to be %s, which never happens", name, other, on.Condition)
			}
		}
	}
	settings := configs.Default()
	for _, name := range []string{"worker", "registry"} {
		if grace := file.Services[name].StopGrace; grace < settings.Send.Drain+settings.Kafka.CommitTimeout+10*time.Second {
			t.Errorf("%s is killed after %v", name, grace)
		}
	}
	// The environment is read as the worker reads it: unknown names are refused.
	var env []string
	for name, value := range file.Shared.Environment {
		env = append(env, name+"="+value)
	}
	if _, err := configs.Parse(nil, env); err != nil {
		t.Errorf("environment of the worker: %v", err)
	}
}

func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`(?m)^FROM (?:--\S+ )?(\S+)`).FindAllSubmatch(text, -1) {
		if image := string(match[1]); !strings.HasPrefix(image, "gcr.io/distroless/static-debian13:nonroot") {
			pinned(t, "Dockerfile", image)
		}
	}
	for _, want := range []string{"./cmd/pushworker", "./cmd/pushctl", "./cmd/pushsim", "main.version=$VERSION", "\nUSER 65532"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
}

// pinned wants an image with a version: without one a fleet changes when
// somebody else publishes.
func pinned(t *testing.T, user, image string) {
	t.Helper()
	_, tag, found := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !found || tag == "" || tag[0] < '0' || tag[0] > '9' {
		t.Errorf("%s: image %q has no version", user, image)
	}
}
