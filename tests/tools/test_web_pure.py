"""What is made of an address, of HTML and of bytes from the web: pure."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hames.tools.markup import Tag, Text, resolved, tokens
from hames.tools.readable import readable
from hames.tools.web_address import is_public
from hames.tools.web_text import decoded, is_text, media_type


@pytest.mark.parametrize("address", ["1.1.1.1", "8.8.8.8", "192.0.9.1", "2606:4700::1111", "64:ff9b::101:101"])
def test_hosts_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "127.0.0.1", "127.9.9.9", "10.1.2.3", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.0.1", "198.18.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1"),
        *(
            "::ffff:10.0.0.1",
            "::ffff:127.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::7f00:1",
            "2002:7f00:1::",
            "::7f00:1",
        ),
        *("2002:c0a8:101::1", "2001:0:7f00:1:0:0:80ff:fffe", "localhost", "", "1.1.1", "1.1.1.1.1"),
    ],
)
def test_what_is_within_a_machine_or_a_network_is_not(address: str) -> None:
    assert not is_public(address)


@given(st.ip_addresses(v=4))
def test_an_address_counts_however_it_is_wrapped(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for wrapped in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80):
        if not address.is_global:
            assert not is_public(str(ipaddress.IPv6Address(wrapped)))


PAGE = """<!doctype html><html><head><title> A &lt;B&gt; </title><style>p {}</style><body class="x>y">
<h2>Head  <em>ing</em></h2><p>One
two<br>three &amp; &#8364; &#xe9;<p>x < y<ul><li>a<li><a href="../up?q=1&amp;r=2">b</a></ul>
<pre>  keep
   this</pre><table><tr><th>k<th>v<tr><td>1<td>2</table>
<img src=x alt="a cat"><a href="#top">top</a><a href='javascript:x()'>js</a><!-- no --><script>if (a<b) "</p>"</script>
<noscript><img src=y></noscript><textarea><b>raw</b></textarea></html>"""


def test_a_page_reads_as_its_reader_sees_it() -> None:
    page = readable(PAGE, "https://e.test/d/e/f", most=10_000)

    assert (page.title, page.cut) == ("A <B>", False)
    assert page.text == (
        "## Head ing\n\nOne two\nthree & € é\n\nx < y\n\n- a\n- [b](https://e.test/d/up?q=1&r=2)\n\n"
        "  keep\n   this\n\n| k | v\n| 1 | 2\n\n[image: a cat] topjs <b>raw</b>"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("", ""),
        ("plain", "plain"),
        ("<head><title>t<p>x", ""),
        ("<head><link><p>x", "x"),
        ("<svg><p>a</svg>b", "b"),
        ("<p>a<b>c</b>d", "acd"),
        ("a<p>b</p> c", "a\n\nb\n\nc"),
        ("<base href='https://o.test/'><a href=p>x</a>", "[x](https://o.test/p)"),
        ("<a href='http://[bad'>x</a>", "x"),
        ("<a href='http://x/" + "y" * 600 + "'>x</a>", "x"),
        ("</a></p></pre>x", "x"),
        ("a <b", "a"),
        ("a <b c='d>e", "a e"),
        ("1 << 2 <3", "1 << 2 <3"),
        (f"<{'n' * 60}>x", "x"),
        ("<é>x", "<é>x"),
        ("<p a=\"1' b='2\">x", "x"),
        ("&#99999999999;&#x110000;&nosuch;", "\ufffd\ufffd&nosuch;"),
    ],
)
def test_markup_that_is_odd_is_read_on(page: str, text: str) -> None:
    assert readable(page, "https://e.test/", most=10_000).text == text


PIECES = st.sampled_from(
    [
        *"<>/ap \n\"'=!?&#1;é",
        *("href", "!--", "-->", "<a href='x'>", "</a>", "<script>", "</script>", "<head>", "<li>", "<h1>", "<td>"),
        *("pre", "<pre>", "</pre>", "<svg>"),
    ]
)


@given(st.lists(PIECES, max_size=60).map("".join), st.integers(0, 50))
def test_any_markup_is_read_to_its_end_within_the_bound(page: str, most: int) -> None:
    made = readable(page, "https://e.test/", most=most)

    assert made.cut or len(made.text) <= most + len(page) + 30 * page.count("href")
    assert all(isinstance(token, Text | Tag) for token in tokens(page))


@given(st.text(alphabet="ab <>&;é\n", max_size=80))
def test_text_without_markup_stays(text: str) -> None:
    import html

    page = readable(html.escape(text), "https://e.test/", most=10_000)

    assert page.text.split() == text.split()


@pytest.mark.unmeasured
@pytest.mark.parametrize(
    "piece", ["<", "<a ", "<a x='", "<!--", "</a ", "<script>", "<b>", "&#9", "<a 'x>y' \"z", "<title>"]
)
def test_much_of_anything_is_read_in_one_go(piece: str) -> None:
    """A quadratic reader would be at it for minutes."""
    readable(piece * (2**18 // len(piece)), "https://e.test/", most=2**20)


def test_long_references_are_no_numbers() -> None:
    assert resolved("&#" + "9" * 5_000 + ";&#x" + "f" * 5_000 + ";&amp;") == "\ufffd\ufffd&"


@given(st.binary(max_size=200), st.text(max_size=40))
def test_any_bytes_become_valid_text(body: bytes, content_type: str) -> None:
    text = decoded(body, content_type)

    text.encode()
    assert "\0" not in text


@pytest.mark.parametrize(
    ("content_type", "body", "expected"),
    [
        ("text/plain", b"\0", True),
        ("application/vnd.api+json", b"", True),
        ("image/svg+xml", b"", True),
        ("", b"text", True),
        ("application/octet-stream", b"a\0", False),
        ("application/zip", b"text", False),
        ("video/mp4", b"", False),
    ],
)
def test_what_can_be_read_is_told_by_its_type(content_type: str, body: bytes, expected: bool) -> None:
    assert is_text(media_type(content_type + "; x=y"), body) is expected
