package gateway

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/pushfleet/pushfleet/push"
)

// Problem is an answer that is none, as RFC 9457 has it, with the members that we add.
type Problem struct {
	Type       string  `json:"type"`
	Title      string  `json:"title"`
	Status     int     `json:"status"`
	Detail     string  `json:"detail,omitempty"`
	Code       string  `json:"code"` // for programs: one of docs/gateway.md, or a reason of docs/reasons.md
	ID         string  `json:"id,omitempty"`
	Errors     []Fault `json:"errors,omitempty"`
	RetryAfter int     `json:"retry_after,omitempty"` // seconds, as the header

	// Of RATE_LIMIT_EXCEEDED.
	Message  string        `json:"message,omitempty"`
	Details  *LimitDetails `json:"details,omitempty"`
	Violated []string      `json:"violated-policies,omitempty"` // draft-ietf-httpapi-ratelimit-headers-10
}

// LimitDetails say which limit of a sender is used up.
type LimitDetails struct {
	Limit      int    `json:"limit"`
	Window     string `json:"window"` // the policy: second, minute, hour or day
	Current    int    `json:"current"`
	RetryAfter int    `json:"retry_after"`
	ResetAt    string `json:"reset_at"`
}

// Fault is one thing that is wrong with a body.
type Fault struct {
	Pointer string `json:"pointer"` // JSON pointer (RFC 6901) to the member; "" = the whole
	Detail  string `json:"detail"`
	Offset  *int   `json:"offset,omitempty"` // in bytes, where the text cannot be read
}

// The codes of problems that are not about a message. docs/gateway.md has them; a test
// compares.
const (
	codeUnauthorized   = "unauthorized"
	codeForbidden      = "forbidden"
	codeForeignSender  = "foreign_sender"
	codeForeignApp     = "foreign_app"
	codeNotFound       = "not_found"
	codeMethod         = "method_not_allowed"
	codeMediaType      = "media_type"
	codeBodyTooLarge   = "body_too_large"
	codeTooManyLines   = "too_many_lines"
	codeNoBody         = "body_unreadable"
	codeBadRequest     = "bad_request"
	codeBadHeader      = "bad_header"
	codeIDAndKey       = "id_and_key"
	codeBadMode        = "unknown_mode"
	codeNoService      = "no_service_type"
	codeNoLane         = "no_lane"
	codeFutureID       = "id_in_future"
	codeIDTaken        = "id_taken"
	codeUnconfirmed    = "unconfirmed"
	codeBufferFull     = "buffer_full"
	codeBusy           = "busy"
	codeNoReceipt      = "no_receipt"
	codeGone           = "gone"
	codeStatusAway     = "status_away"
	codeForeignUser    = "foreign_user"
	codeInvalidField   = "invalid_field"
	codeNoDevice       = "no_such_device"
	codeNoLink         = "no_such_link"
	codeNoToken        = "no_such_token"
	codeNotConfigured  = "not_configured"
	codeRegistryAway   = "registry_away"
	codeNoTopic        = "no_such_topic"
	codeNoSegment      = "no_such_segment"
	codeTopicTaken     = "topic_taken"
	codeTopicClosed    = "topic_closed"
	codeManyTopics     = "too_many_topics"
	codeTopicsAway     = "topics_away"
	codeInboxAway      = "inbox_away"
	codeFanoutOver     = "fanout_over"
	codeInternal       = "internal"
	codeTooMany        = "RATE_LIMIT_EXCEEDED" // the word that callers know from elsewhere
	docsGateway        = "https://github.com/pushfleet/pushfleet/blob/main/docs/gateway.md#"
	docsReasons        = "https://github.com/pushfleet/pushfleet/blob/main/docs/reasons.md#"
	problemContentType = "application/problem+json"
	typeQuotaExceeded  = "https://iana.org/assignments/http-problem-types#quota-exceeded"
)

// kinds are the status and title of each code.
var kinds = map[string]struct {
	status int
	title  string
}{
	codeUnauthorized:  {http.StatusUnauthorized, "No valid key"},
	codeForbidden:     {http.StatusForbidden, "Not allowed"},
	codeForeignSender: {http.StatusForbidden, "Not your sender"},
	codeForeignApp:    {http.StatusForbidden, "Not your app"},
	codeNotFound:      {http.StatusNotFound, "No such route"},
	codeMethod:        {http.StatusMethodNotAllowed, "Method not allowed"},
	codeMediaType:     {http.StatusUnsupportedMediaType, "Wrong media type"},
	codeBodyTooLarge:  {http.StatusRequestEntityTooLarge, "Body too large"},
	codeTooManyLines:  {http.StatusRequestEntityTooLarge, "Too many"},
	codeNoBody:        {http.StatusBadRequest, "Body not received"},
	codeBadRequest:    {http.StatusBadRequest, "Request not understood"},
	codeBadHeader:     {http.StatusBadRequest, "Header refused"},
	codeIDAndKey:      {http.StatusBadRequest, "Two names for one message"},
	codeBadMode:       {http.StatusBadRequest, "Unknown mode"},
	codeNoService:     {http.StatusBadRequest, "No service type"},
	codeNoLane:        {http.StatusBadRequest, "No lane"},
	codeFutureID:      {http.StatusUnprocessableEntity, "Message refused"},
	codeIDTaken:       {http.StatusUnprocessableEntity, "Another message has this id"},
	codeUnconfirmed:   {http.StatusServiceUnavailable, "Not confirmed"},
	codeBufferFull:    {http.StatusServiceUnavailable, "Too much at once"},
	codeBusy:          {http.StatusServiceUnavailable, "Too much at once"},
	codeNoReceipt:     {http.StatusNotFound, "No such receipt"},
	codeGone:          {http.StatusGone, "No longer known"},
	codeStatusAway:    {http.StatusServiceUnavailable, "Status not available"},
	codeForeignUser:   {http.StatusForbidden, "Not your user"},
	codeFanoutOver:    {http.StatusConflict, "Over"},
	codeInvalidField:  {http.StatusUnprocessableEntity, "Not accepted"},
	codeNoDevice:      {http.StatusNotFound, "No such device"},
	codeNoLink:        {http.StatusNotFound, "No such link"},
	codeNoToken:       {http.StatusNotFound, "No such token"},
	codeNotConfigured: {http.StatusNotImplemented, "Not configured"},
	codeRegistryAway:  {http.StatusServiceUnavailable, "Users cannot be read"},
	codeNoTopic:       {http.StatusNotFound, "No such topic"},
	codeNoSegment:     {http.StatusNotFound, "No such segment"},
	codeTopicTaken:    {http.StatusConflict, "Another topic of that name"},
	codeTopicClosed:   {http.StatusConflict, "Topic closed"},
	codeManyTopics:    {http.StatusConflict, "Too many topics"},
	codeInboxAway:     {http.StatusServiceUnavailable, "Inboxes not available"},
	codeTopicsAway:    {http.StatusServiceUnavailable, "Topics not available"},
	codeInternal:      {http.StatusInternalServerError, "Our fault"},
	codeTooMany:       {http.StatusTooManyRequests, "Quota exceeded"},
}

func newProblem(code, detail string) *Problem {
	k := kinds[code]
	return &Problem{Type: docsGateway + code, Title: k.title, Status: k.status, Detail: detail, Code: code}
}

// at adds which member is wrong.
func (p *Problem) at(pointer string) *Problem {
	p.Errors = append(p.Errors, Fault{Pointer: pointer, Detail: p.Detail})
	return p
}

// after says when a repeat may succeed.
func (p *Problem) after(seconds int) *Problem {
	p.RetryAfter = seconds
	return p
}

// of says which notification it is about.
func (p *Problem) of(id string) *Problem {
	p.ID = id
	return p
}

// refusal is the problem of a message that a worker would dead-letter, with the reason
// that it would have.
func refusal(d *push.Defect, words string) *Problem {
	fault := faultOf(d)
	fault.Detail = words
	p := &Problem{Type: docsReasons + string(d.Reason), Title: "Message refused", Status: http.StatusUnprocessableEntity, Code: string(d.Reason), Detail: words}
	p.Errors = []Fault{fault}
	return p
}

// faultOf turns the place of a defect into a JSON pointer: "fcm.data" into "/fcm/data",
// "title@17" into "/title" and the offset 17. Names that the contract knows have neither
// dots nor slashes.
func faultOf(d *push.Defect) Fault {
	path, offset, located := strings.Cut(d.Field, "@")
	f := Fault{}
	if path != "" {
		f.Pointer = "/" + strings.ReplaceAll(path, ".", "/")
	}
	if n, err := strconv.Atoi(offset); located && err == nil {
		f.Offset = &n
	}
	return f
}

// write answers with the problem.
func (p *Problem) write(w http.ResponseWriter) {
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="pushgateway"`)
	}
	if p.Status == http.StatusRequestEntityTooLarge || p.Code == codeNoBody {
		w.Header().Set("Connection", "close") // the rest of the body is not read
	}
	answer(w, p.Status, problemContentType, p)
}

// answer writes a value as JSON. Who has gone away does not hear it, which is no error.
func answer(w http.ResponseWriter, status int, contentType string, value any) {
	text := append(appendJSON(nil, value), '\n')
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

func appendJSON(out []byte, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // our own structs always encode
	}
	return append(out, text...)
}

// Values of headers that are the same in every answer. Nobody writes to them.
var (
	valueJSON    = []string{"application/json"}
	valueNoSniff = []string{"nosniff"}
	valueNoStore = []string{"no-store"}
)

// short is the length of an answer below which net/http says the length by itself.
const short = 2 << 10

// answerText writes a JSON text.
func answerText(w http.ResponseWriter, status int, text []byte) (written bool) {
	h := w.Header()
	h["Content-Type"] = valueJSON
	if len(text) >= short {
		h["Content-Length"] = []string{strconv.Itoa(len(text))}
	}
	w.WriteHeader(status)
	_, err := w.Write(text)
	return err == nil
}
