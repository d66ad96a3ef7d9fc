package sim

import "strings"

// fieldType is the type of a field in proto3 JSON.
type fieldType uint8

const (
	typeString fieldType = iota
	typeBool
	typeInt
	typeFloat
	typeDuration
	typeTimestamp
	typeEnum
	typeStruct // any JSON object
	typeStringMap
	typeStringList
	typeDurationList
	typeMessage
)

// use says what the policy does with a field besides checking its type.
type use uint8

const (
	useNothing use = iota
	useSize        // counts towards the payload
	useToken
	useFid
	useTopic
	useCondition
	useValidateOnly
	useData      // counts, and holds the notification id
	useTTL       // has a range
	useAPNS      // is limited as Apple does
	useHTTPSLink // must be one
)

// fcmField is a field of FCM's request.
type fcmField struct {
	path   string
	typ    fieldType
	use    use
	proto  string // the type's name in Google's complaints
	values []string
	sub    fcmFields
}

// fcmFields are the fields of a message type, under both spellings.
type fcmFields map[string]*fcmField

// fcmSchema is the body of messages:send. A field may be written in snake_case
// or lowerCamelCase.
func fcmSchema() *fcmField {
	str := func(u use) *fcmField { return &fcmField{typ: typeString, proto: "TYPE_STRING", use: u} }
	of := func(t fieldType, proto string) *fcmField { return &fcmField{typ: t, proto: proto} }
	enum := func(proto string, values ...string) *fcmField {
		return &fcmField{typ: typeEnum, proto: "type.googleapis.com/google.firebase.fcm.v1." + proto, values: values}
	}
	message := func(proto string, f fcmFields) *fcmField {
		return &fcmField{typ: typeMessage, proto: "type.googleapis.com/google.firebase.fcm.v1." + proto, sub: f}
	}
	const duration, timestamp, object = "type.googleapis.com/google.protobuf.Duration",
		"type.googleapis.com/google.protobuf.Timestamp", "type.googleapis.com/google.protobuf.Struct"
	stringMap := func(u use) *fcmField { return &fcmField{typ: typeStringMap, proto: "TYPE_STRING", use: u} }
	boolean := func() *fcmField { return of(typeBool, "TYPE_BOOL") }
	float := func() *fcmField { return of(typeFloat, "TYPE_FLOAT") }

	light := message("LightSettings", fcmFields{
		"color":              message("Color", fcmFields{"red": float(), "green": float(), "blue": float(), "alpha": float()}),
		"light_on_duration":  of(typeDuration, duration),
		"light_off_duration": of(typeDuration, duration),
	})
	androidNotification := message("AndroidNotification", fcmFields{
		"title": str(useSize), "body": str(useSize), "icon": str(useSize), "color": str(useSize), "sound": str(useSize),
		"tag": str(useSize), "click_action": str(useSize), "body_loc_key": str(useSize), "title_loc_key": str(useSize),
		"body_loc_args": of(typeStringList, "TYPE_STRING"), "title_loc_args": of(typeStringList, "TYPE_STRING"),
		"channel_id": str(useSize), "image": str(useSize), "ticker": str(useSize), "sticky": boolean(),
		"event_time": of(typeTimestamp, timestamp), "local_only": boolean(),
		"notification_priority": enum("AndroidNotification.NotificationPriority", "PRIORITY_UNSPECIFIED", "PRIORITY_MIN",
			"PRIORITY_LOW", "PRIORITY_DEFAULT", "PRIORITY_HIGH", "PRIORITY_MAX"),
		"vibrate_timings": of(typeDurationList, duration), "default_vibrate_timings": boolean(),
		"default_sound": boolean(), "light_settings": light, "default_light_settings": boolean(),
		"visibility":         enum("AndroidNotification.Visibility", "VISIBILITY_UNSPECIFIED", "PRIVATE", "PUBLIC", "SECRET"),
		"notification_count": of(typeInt, "TYPE_INT32"), "bypass_proxy_notification": boolean(),
		"proxy": enum("AndroidNotification.Proxy", "PROXY_UNSPECIFIED", "ALLOW", "DENY", "IF_PRIORITY_LOWERED"),
	})
	android := message("AndroidConfig", fcmFields{
		"collapse_key": str(useNothing), "priority": enum("AndroidConfig.AndroidMessagePriority", "NORMAL", "HIGH"),
		"ttl":                     {typ: typeDuration, proto: duration, use: useTTL},
		"restricted_package_name": str(useNothing), "data": stringMap(useData), "notification": androidNotification,
		"fcm_options":    message("AndroidFcmOptions", fcmFields{"analytics_label": str(useNothing)}),
		"direct_boot_ok": boolean(), "bandwidth_constrained_ok": boolean(), "restricted_satellite_ok": boolean(),
	})
	apns := message("ApnsConfig", fcmFields{
		"headers": stringMap(useNothing), "payload": {typ: typeStruct, proto: object, use: useAPNS},
		"fcm_options":         message("ApnsFcmOptions", fcmFields{"analytics_label": str(useNothing), "image": str(useNothing)}),
		"live_activity_token": str(useNothing),
	})
	webpush := message("WebpushConfig", fcmFields{
		"headers": stringMap(useNothing), "data": stringMap(useNothing), "notification": of(typeStruct, object),
		"fcm_options": message("WebpushFcmOptions", fcmFields{"link": str(useHTTPSLink), "analytics_label": str(useNothing)}),
	})
	root := message("SendMessageRequest", fcmFields{
		"validate_only": {typ: typeBool, proto: "TYPE_BOOL", use: useValidateOnly},
		"message": message("Message", fcmFields{
			"name": str(useNothing), "token": str(useToken), "fid": str(useFid), "topic": str(useTopic), "condition": str(useCondition),
			"notification": message("Notification", fcmFields{"title": str(useSize), "body": str(useSize), "image": str(useSize)}),
			"data":         stringMap(useData), "android": android, "apns": apns, "webpush": webpush,
			"fcm_options": message("FcmOptions", fcmFields{"analytics_label": str(useNothing)}),
		}),
	})
	root.sub.settle("")
	return root
}

// settle gives every field its path, and its second spelling.
func (fs fcmFields) settle(path string) {
	camel := fcmFields{}
	for name, f := range fs {
		f.path = strings.TrimPrefix(path+"."+name, ".")
		f.sub.settle(f.path)
		camel[camelCase(name)] = f
	}
	for name, f := range camel {
		fs[name] = f
	}
}

func camelCase(snake string) string {
	var b strings.Builder
	upper := false
	for _, c := range snake {
		switch {
		case c == '_':
			upper = true
			continue
		case upper:
			c, upper = c-'a'+'A', false
		}
		b.WriteRune(c)
	}
	return b.String()
}
