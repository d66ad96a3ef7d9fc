// Package deploy_test holds the manifests for containers to what the code
// says: settings exist, time-outs leave room, images are pinned.
package deploy_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
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

// UnmarshalYAML reads a selector, of a Service too: it has the labels themselves.
func (s *selector) UnmarshalYAML(n *yaml.Node) error {
	if len(n.Content) > 0 && n.Content[0].Value != "matchLabels" {
		return n.Decode(&s.MatchLabels)
	}
	var file struct {
		MatchLabels map[string]string `yaml:"matchLabels"`
	}
	err := n.Decode(&file)
	if s.MatchLabels = file.MatchLabels; err == nil && len(n.Content) > 2 {
		err = fmt.Errorf("line %d: a selector with more than matchLabels", n.Line)
	}
	return err
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

		PodSelector selector `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Ingress     []struct {
			From  []peer `yaml:"from"`
			Ports []port `yaml:"ports"`
		} `yaml:"ingress"`
		Egress []struct {
			To    []peer `yaml:"to"`
			Ports []port `yaml:"ports"`
		} `yaml:"egress"`

		Ports []port `yaml:"ports"`
	} `yaml:"spec"`
}

// peer is one side of a NetworkPolicy's rule.
type peer struct {
	NamespaceSelector selector `yaml:"namespaceSelector"`
	IPBlock           struct {
		CIDR   string   `yaml:"cidr"`
		Except []string `yaml:"except"`
	} `yaml:"ipBlock"`
}

type port struct {
	Name       string `yaml:"name"`       // of a Service
	TargetPort string `yaml:"targetPort"` // of a Service
	Port       int    `yaml:"port"`
	Protocol   string `yaml:"protocol"`
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
	versions := map[string]string{"Deployment": "apps/v1", "PodDisruptionBudget": "policy/v1", "ConfigMap": "v1", "Service": "v1", "NetworkPolicy": "networking.k8s.io/v1"}
	for _, o := range objects(t) {
		if versions[o.Kind] == "" || versions[o.Kind] != o.APIVersion {
			t.Errorf("%s %s has apiVersion %q", o.Kind, o.Metadata.Name, o.APIVersion)
		}
	}
}

func TestKubernetesDeployments(t *testing.T) {
	settings := kubernetesConfig(t)
	listens := map[string]string{"pushworker": settings.Admin.Listen, "pushregistry": settings.Registry.Listen, "pushgateway": settings.Gateway.AdminListen,
		"pushfanout": settings.Gateway.Fanout.AdminListen, "pushwebhooks": settings.Gateway.Webhooks.AdminListen}
	for name, command := range map[string][]string{"pushworker": {"pushworker", "run"}, "pushregistry": {"pushworker", "registry"}, "pushgateway": {"pushgateway", "serve"},
		"pushfanout": {"pushgateway", "fanout"}, "pushwebhooks": {"pushgateway", "webhooks"}} {
		_, adminPort, _ := strings.Cut(listens[name], ":")
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
		if want := append(command, "--config", "/etc/pushfleet/config/worker.yaml"); !slices.Equal(c.Command, want) {
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
			t.Errorf("%s: port %+v, but it listens at %s", name, c.Ports[0], listens[name])
		}
		pinned(t, name, c.Image)
		for i, volume := range p.Volumes {
			if mount := c.VolumeMounts[i]; mount.Name != volume.Name || !mount.ReadOnly {
				t.Errorf("%s: volume %s is mounted as %+v", name, volume.Name, mount)
			}
		}
	}
	for _, name := range []string{"pushworker", "pushregistry", "pushgateway", "pushfanout", "pushwebhooks"} {
		d, budget := find(t, "Deployment", name), find(t, "PodDisruptionBudget", name)
		if d.Spec.Replicas < 2 {
			t.Errorf("%d of %s are none when a node goes", d.Spec.Replicas, name)
		}
		if fmt.Sprint(d.Spec.Selector) != fmt.Sprint(budget.Spec.Selector) || budget.Spec.MaxUnavailable != 1 {
			t.Errorf("the disruption budget of %s is %+v", name, budget.Spec)
		}
	}
}

// A pod gets to what its configuration names and to nothing else: the registry
// neither to Cassandra nor to the world.
func TestKubernetesNetwork(t *testing.T) {
	c := kubernetesConfig(t)
	portOf := func(address string) int {
		_, p, err := net.SplitHostPort(address)
		n, numErr := strconv.Atoi(p)
		if err != nil || numErr != nil {
			t.Fatalf("%s has no port", address)
		}
		return n
	}
	listens := map[string]string{"pushworker": c.Admin.Listen, "pushregistry": c.Registry.Listen}
	kafka, redis, cassandra := portOf(c.Kafka.Brokers[0]), portOf(c.Redis.Addresses[0]), portOf(c.Cassandra.Hosts[0])
	for name, want := range map[string][]int{
		"pushworker":   {53, 53, kafka, redis, cassandra, 443},
		"pushregistry": {53, 53, kafka, redis},
	} {
		p := find(t, "NetworkPolicy", name).Spec
		if fmt.Sprint(p.PodSelector) != fmt.Sprint(find(t, "Deployment", name).Spec.Selector) || !slices.Equal(p.PolicyTypes, []string{"Ingress", "Egress"}) {
			t.Errorf("%s: the policy is for %v in %v", name, p.PodSelector, p.PolicyTypes)
		}
		if len(p.Ingress) != 1 || len(p.Ingress[0].From) != 1 || len(p.Ingress[0].From[0].NamespaceSelector.MatchLabels) == 0 ||
			len(p.Ingress[0].Ports) != 1 || p.Ingress[0].Ports[0].Port != portOf(listens[name]) {
			t.Errorf("%s: let in is %+v, want Prometheus to the admin port", name, p.Ingress)
		}
		var got []int
		for _, rule := range p.Egress {
			for _, p := range rule.Ports {
				got = append(got, p.Port)
				if p.Port == 443 {
					checkPublic(t, name, rule.To)
				}
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: let out is to ports %v, want %v", name, got, want)
		}
	}
	for _, a := range c.Apps {
		for _, at := range []string{a.APNS.ProductionURL, a.APNS.SandboxURL, a.FCM.URL} {
			if u, err := url.Parse(at); err != nil || u.Port() != "" && u.Port() != "443" {
				t.Errorf("%s is not let out to: %v", at, err)
			}
		}
	}
}

// checkPublic: what goes to the world goes to no address that is ours.
func checkPublic(t *testing.T, name string, to []peer) {
	t.Helper()
	if len(to) == 0 {
		t.Errorf("%s is let out to everything", name)
	}
	for _, private := range []string{"10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "127.0.0.1", "::1", "fd00::1", "fe80::1"} {
		address := netip.MustParseAddr(private)
		for _, p := range to {
			if !netip.MustParsePrefix(p.IPBlock.CIDR).Contains(address) {
				continue
			}
			if !slices.ContainsFunc(p.IPBlock.Except, func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(address) }) {
				t.Errorf("%s is let out to %s", name, private)
			}
		}
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

// secretFiles are the files of each secret that the comment at the top of
// config.yaml says to make.
func secretFiles(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("kubernetes/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string][]string{}
	for _, command := range regexp.MustCompile(`create secret generic (\w+)((?: \\\n#\s+--from-file[^\\\n]*[^\\\n ])+)`).FindAllStringSubmatch(string(text), -1) {
		for _, file := range regexp.MustCompile(`--from-file=([\w.-]+)`).FindAllStringSubmatch(command[2], -1) {
			secrets[command[1]] = append(secrets[command[1]], file[1])
		}
	}
	return secrets
}

// namedSecrets are the files under /etc/pushfleet/secrets that a configuration
// names.
func namedSecrets(t *testing.T, c *configs.Config) (names []string) {
	t.Helper()
	var text bytes.Buffer
	if err := configs.Print(&text, c); err != nil {
		t.Fatal(err)
	}
	for _, match := range regexp.MustCompile(`/etc/pushfleet/secrets/([\w.-]+)`).FindAllStringSubmatch(text.String(), -1) {
		names = append(names, match[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Each pod has the secrets that it needs and no others: the registry none of
// the providers' keys, nothing of Cassandra, and a name of its own.
func TestKubernetesSecrets(t *testing.T) {
	secrets := secretFiles(t)
	worker, registry, gateway := kubernetesConfig(t), kubernetesConfig(t), kubernetesConfig(t)
	worker.Gateway, registry.Gateway = configs.Default().Gateway, configs.Default().Gateway
	registry.Apps, registry.Cassandra = nil, configs.Default().Cassandra
	gateway.Apps, gateway.Redis, gateway.Gateway.Webhooks = nil, configs.Default().Redis, configs.Webhooks{}
	fanout, webhooks := kubernetesConfig(t), kubernetesConfig(t)
	fanout.Apps, fanout.Redis, fanout.Gateway = nil, configs.Default().Redis, configs.Gateway{}
	webhooks.Apps, webhooks.Redis, webhooks.Cassandra = nil, configs.Default().Redis, configs.Default().Cassandra
	webhooks.Gateway = configs.Gateway{Webhooks: webhooks.Gateway.Webhooks}
	for name, want := range map[string][]string{"pushworker": namedSecrets(t, worker), "pushregistry": namedSecrets(t, registry), "pushgateway": namedSecrets(t, gateway),
		"pushfanout": namedSecrets(t, fanout), "pushwebhooks": namedSecrets(t, webhooks)} {
		if len(want) < 3 {
			t.Fatalf("%s: the configuration names %q", name, want)
		}
		got := slices.Sorted(slices.Values(secrets[name]))
		if !slices.Equal(got, want) {
			t.Errorf("secret %s is made of %q, and its pod needs %q", name, got, want)
		}
		for _, v := range find(t, "Deployment", name).Spec.Template.Spec.Volumes {
			if v.Name == "secrets" && v.Secret.SecretName != name {
				t.Errorf("%s mounts the secret %s", name, v.Secret.SecretName)
			}
		}
	}
	c := configOf(t, "pushregistry")
	if c.Kafka.SASL.Username == worker.Kafka.SASL.Username || c.Redis.Username == worker.Redis.Username {
		t.Errorf("the registry is %s and %s, as the workers are", c.Kafka.SASL.Username, c.Redis.Username)
	}
	if c = configOf(t, "pushgateway"); c.Kafka.SASL.Username == worker.Kafka.SASL.Username || c.Cassandra.Username == worker.Cassandra.Username {
		t.Errorf("the gateway is %s and %s, as the workers are", c.Kafka.SASL.Username, c.Cassandra.Username)
	}
}

// configOf is the configuration of a deployment's pods, with their environment.
func configOf(t *testing.T, deployment string) *configs.Config {
	t.Helper()
	var env []string
	for _, e := range find(t, "Deployment", deployment).Spec.Template.Spec.Containers[0].Env {
		env = append(env, e["name"]+"="+e["value"])
	}
	c, err := configs.Parse([]byte(find(t, "ConfigMap", "pushfleet").Data["worker.yaml"]), env)
	if err != nil {
		t.Fatal(err)
	}
	return c
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
	Configs     []struct {
		Source string `yaml:"source"`
		Target string `yaml:"target"`
	} `yaml:"configs"`
	StopGrace time.Duration `yaml:"stop_grace_period"`
	DependsOn map[string]struct {
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
		Configs  map[string]struct {
			Content string `yaml:"content"`
		} `yaml:"configs"`
	}
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"kafka", "redis", "cassandra", "topics", "schema", "pushsim", "registry", "worker", "gateway", "fanout"} {
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
	for _, name := range []string{"worker", "registry", "gateway", "fanout"} {
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
	env = nil
	for name, value := range file.Services["gateway"].Environment {
		env = append(env, name+"="+value)
	}
	c, err := configs.Parse(nil, env)
	if err != nil {
		t.Fatalf("environment of the gateway: %v", err)
	}
	for _, mounted := range file.Services["gateway"].Configs {
		if file.Configs[mounted.Source].Content == "" || mounted.Target != c.Gateway.KeysFile && mounted.Target != c.Gateway.ReceiptsFile {
			t.Errorf("the gateway has %s at %s, and reads %s and %s", mounted.Source, mounted.Target, c.Gateway.KeysFile, c.Gateway.ReceiptsFile)
		}
	}
	// The key of the page's own example is the one that is known.
	key := regexp.MustCompile(`Authorization: Bearer ([a-z-]+)`).FindSubmatch(text)
	if key == nil || !strings.Contains(file.Configs["gateway-keys"].Content, fmt.Sprintf("%x", sha256.Sum256(key[1]))) {
		t.Errorf("the key of the example is %s, and known is %s", key, file.Configs["gateway-keys"].Content)
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
	for _, want := range []string{"./cmd/pushworker", "./cmd/pushgateway", "./cmd/pushctl", "./cmd/pushsim", "./cmd/pushdemo", "main.version=$VERSION", "\nUSER 65532"} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the Dockerfile lacks %q", want)
		}
	}
}

// pinned wants an image with a version: without one a fleet changes when
// somebody else publishes. A digest may stand behind it.
func pinned(t *testing.T, user, image string) {
	t.Helper()
	if !version.MatchString(image) {
		t.Errorf("%s: image %q has no version, or a digest that is none", user, image)
	}
}

var version = regexp.MustCompile(`^[^@]+:[0-9][^:/@]*(@sha256:[0-9a-f]{64})?$`)

func TestPinned(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0123456789abcdef", 4)
	for image, want := range map[string]bool{
		"redis:8": true, "apache/kafka:4.3.1" + digest: true, "ghcr.io:5000/a/b:0.1.0": true,
		"redis": false, "redis:latest": false, "ghcr.io:5000/a/b": false, "redis" + digest: false, "redis:8@sha256:abc": false, "redis:8" + digest + "0": false,
	} {
		if version.MatchString(image) != want {
			t.Errorf("%q counts as pinned: %v", image, !want)
		}
	}
}
