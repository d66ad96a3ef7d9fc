if (new URLSearchParams(location.search).has('wrong')) {
  document.getElementById('wrong').hidden = false;
}
document.querySelector('input[name=key]').focus();
